package token

import (
	"strings"
	"unicode/utf8"
)

// word prices the letters at i, one stretch of a script at a time.
func (s *scan) word(i int) int {
	r, _ := utf8.DecodeRuneInString(s.text[i:])
	end := i
	switch sc := scriptOf(r); sc {
	case latin:
		return s.latinWord(i)
	case han, hangul, kana:
		end = s.ideographs(i)
	default:
		end = s.otherWord(i, sc)
	}
	s.lead = leadNone
	return end
}

type script int8

const (
	latin script = iota
	cyrillic
	greek
	han
	kana
	hangul
	abjad  // Arabic, Hebrew
	indic  // Devanagari and its kin
	thai   // and Lao
	others // scripts that encodings know little of
)

func scriptOf(r rune) script {
	switch {
	case r < 0x370, r >= 0x1e00 && r < 0x1f00, r >= 0x2c60 && r < 0x2c80, r >= 0xa720 && r < 0xa800:
		return latin
	case r < 0x400, r >= 0x1f00 && r < 0x2000:
		return greek
	case r < 0x530:
		return cyrillic
	case r >= 0x590 && r < 0x780:
		return abjad
	case r >= 0x900 && r < 0xe00:
		return indic
	case r >= 0xe00 && r < 0xf00:
		return thai
	case r >= 0x3040 && r < 0x3100:
		return kana
	case r >= 0x3400 && r < 0xa000, r >= 0xf900 && r < 0xfb00, r >= 0x20000:
		return han
	case r >= 0xac00 && r < 0xd7b0:
		return hangul
	}
	return others
}

// commonHan and commonHangul are characters that natural text cannot do without. Where they are missing, characters
// are rare ones, and those cost two or three tokens each.
const (
	commonHan    = "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生自会那后能对着事其里所去行过家十用发天如然作方成者多日都三小军二无同么经法当起与好看学进种将还分此心前面又定见只主没公从知使两间文但本女新正量理动点明高手机长样问现数据系统内容由名部件请些把被這為來個們說國時會後對著裡過發經當學進種將還沒從兩間問現數據係統內樣關開機長實無與電業合入見思言語今度場物"
	commonHangul = "이다는을가에의로하고한은지를있기도서사으나리시해정어그자인대수아일과라전상만보부제원들면것게할여안성적니조주공우스동국장소습했된합되며였요까네세무신"
)

// ideographs prices a run of Chinese, Japanese or Korean. Common characters are about a token each or less, since
// usual pairs are tokens too; where the common ones are missing the others are rare and cost two or three.
func (s *scan) ideographs(i int) int {
	for i < len(s.text) {
		r, n := utf8.DecodeRuneInString(s.text[i:])
		if !isLetter(r) {
			break
		}
		switch scriptOf(r) {
		case kana:
			s.milli += 780
		case han:
			s.milli += s.han.rare(r, commonHan, 910, 1500)
		case hangul:
			s.milli += s.hangul.rare(r, commonHangul, 760, 2100)
		default:
			return i
		}
		i += n
	}
	return i
}

// rare prices a character: the base, and a share of the surcharge that grows once fewer than usual are common.
func (u *usual) rare(r rune, common string, base, surcharge int) int {
	seen := 1000
	if strings.ContainsRune(common, r) {
		seen = 0
	}
	u.see(seen, rareSpan)
	return base + surcharge*max(0, u.at-rareFrom)/(1000-rareFrom)
}

// rareFrom is the share of characters outside the common ones that natural text stays around.
const rareFrom = 720

// otherWord prices a word of another alphabet: so much a word, so much a letter beyond the second.
func (s *scan) otherWord(i int, sc script) int {
	end, n := s.run(i, none, func(r rune) bool { return isLetter(r) && scriptOf(r) == sc })
	c := scriptCosts[sc]
	s.milli += c.word + max(0, n-2)*c.letter
	if s.lead != leadSpace {
		s.milli += c.letter
	}
	return end
}

var scriptCosts = [...]struct{ word, letter int }{
	cyrillic: {1000, 260},
	greek:    {1000, 390},
	abjad:    {1000, 370},
	indic:    {1000, 400},
	thai:     {1000, 540},
	others:   {1500, 1150},
}
