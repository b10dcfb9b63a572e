package lexical

import (
	"slices"
	"strings"
	"sync"

	"github.com/kljensen/snowball/english"
)

// irregular lists words of which the stemmer does not see that they are one: a line is one word in
// its forms. Forms that the stemmer joins by itself (buys, buying) are left out, and so are words
// whose forms mean something else more often than not (found: to found, lay: to lay).
const irregular = `
arise arose arisen
awake awoke awoken
bear bore borne
beat beaten
become became
befall befell befallen
begin began begun
bend bent
bind bound
bite bit bitten
bleed bled
blow blew blown
break broke broken
breed bred
bring brought
broadcast broadcasted
build built
burn burnt
buy bought
catch caught
choose chose chosen
cling clung
come came
creep crept
deal dealt
dig dug
dive dove
draw drew drawn
dream dreamt
drink drank drunk
drive drove driven
dwell dwelt
eat ate eaten
fall fell fallen
feed fed
feel felt
fight fought
find found
flee fled
fling flung
fly flew flown
forbid forbade forbidden
foresee foresaw foreseen
forget forgot forgotten
forgive forgave forgiven
freeze froze frozen
get got gotten
give gave given
go went gone
grind ground
grow grew grown
hang hung
hear heard
hide hid hidden
hold held
keep kept
kneel knelt
knit knitted
know knew known
lead led
lean leant
leap leapt
learn learnt
leave left
lend lent
light lit
lose lost
make made
mean meant
meet met
mislead misled
mistake mistook mistaken
misunderstand misunderstood
mow mown
outgrow outgrew outgrown
overcome overcame
oversee oversaw overseen
oversleep overslept
overtake overtook overtaken
partake partook partaken
pay paid
plead pled
prove proven
rebuild rebuilt
redo redid redone
repay repaid
retell retold
rethink rethought
rewrite rewrote rewritten
ride rode ridden
ring rang rung
rise rose risen
run ran
say said
see saw seen
seek sought
sell sold
send sent
sew sewn
shake shook shaken
shave shaven
shine shone
shoot shot
show shown
shrink shrank shrunk
sing sang sung
sink sank sunk
sit sat
sleep slept
slide slid
sling slung
smell smelt
sneak snuck
sow sown
speak spoke spoken
speed sped
spell spelt
spend spent
spill spilt
spin spun
spit spat
spoil spoilt
spring sprang sprung
stand stood
steal stole stolen
stick stuck
sting stung
stink stank stunk
stride strode stridden
strike struck stricken
string strung
strive strove striven
swear swore sworn
sweep swept
swell swollen
swim swam swum
swing swung
take took taken
teach taught
tear tore torn
tell told
think thought
throw threw thrown
undergo underwent undergone
understand understood
undertake undertook undertaken
undo undid undone
uphold upheld
wake woke woken
wear wore worn
weave wove woven
weep wept
win won
wind wound
withdraw withdrew withdrawn
withhold withheld
withstand withstood
wring wrung
write wrote written
analysis analyses
appendix appendices
axis axes
bacterium bacteria
brother brethren
cactus cacti
calf calves
child children
crisis crises
criterion criteria
curriculum curricula
datum data
diagnosis diagnoses
dwarf dwarves
elf elves
foot feet
fungus fungi
goose geese
half halves
hoof hooves
hypothesis hypotheses
index indices
knife knives
larva larvae
leaf leaves
life lives
loaf loaves
louse lice
man men
matrix matrices
medium media
mouse mice
nucleus nuclei
oasis oases
ox oxen
person people
phenomenon phenomena
policeman policemen
scarf scarves
self selves
sheaf sheaves
shelf shelves
stimulus stimuli
synopsis synopses
thief thieves
tooth teeth
vertebra vertebrae
vertex vertices
wife wives
wolf wolves
woman women
bad worse worst
far farther further farthest furthest
good better best
little less least
many more most
die death dead
high height
deep depth
long length
strong strength
wide width
young youth
warm warmth
hot heat
proud pride
choose choice
lose loss
live life
believe belief
prove proof
relieve relief
grieve grief
advise advice
`

// formsOf returns the other stems of the word that a stem stands for, ascending; nil for nearly all
// stems.
func formsOf(stem string) []string { return forms()[stem] }

var forms = sync.OnceValue(func() map[string][]string {
	of := map[string][]string{}
	for line := range strings.Lines(irregular) {
		var stems []string
		for _, word := range strings.Fields(line) {
			if !isStopWord(word) {
				stems = append(stems, english.Stem(word, true))
			}
		}
		for _, a := range stems {
			for _, b := range stems {
				if a != b && !slices.Contains(of[a], b) {
					of[a] = append(of[a], b)
				}
			}
		}
	}
	for _, others := range of {
		slices.Sort(others)
	}
	return of
})
