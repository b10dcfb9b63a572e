package commands

import (
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/directive"
)

// flags are the parsed arguments. The four preloads are given or not; an empty
// value is given.
type flags struct {
	json, preprocess bool
	options          []directive.Option
	suggest          string // a program; "": none
	preloads         map[string]string
}

const (
	stateJSON      = "--initial-state-json"
	stateFile      = "--initial-state-file"
	checkpointJSON = "--initial-checkpoint-json"
	checkpointFile = "--initial-checkpoint-file"
)

func parseFlags(args []string, suggests bool) (flags, error) {
	f := flags{preloads: map[string]string{}}
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; arg {
		case "--json":
			f.json = true
		case "--with-preprocessor":
			f.preprocess = true
		case "--any-case":
			f.options = append(f.options, directive.AnyCase)
		case "--refuse-compound":
			f.options = append(f.options, directive.RefuseCompound)
		case "--suggest":
			if !suggests {
				return f, fmt.Errorf("unknown option '%s'", arg)
			}
			if i++; i == len(args) || args[i] == "" {
				return f, fmt.Errorf("option '%s' requires a value", arg)
			}
			f.suggest = args[i]
		case stateJSON, stateFile, checkpointJSON, checkpointFile:
			if i++; i == len(args) {
				return f, fmt.Errorf("option '%s' requires a value", arg)
			}
			if f.has(arg) {
				return f, fmt.Errorf("option '%s' was provided more than once", arg)
			}
			f.preloads[arg] = args[i]
		default:
			return f, fmt.Errorf("unknown option '%s'", arg)
		}
	}
	return f, f.exclusive()
}

func (f flags) has(name string) bool { _, ok := f.preloads[name]; return ok }

func (f flags) exclusive() error {
	switch {
	case f.has(stateJSON) && f.has(stateFile):
		return errors.New("state preload options are mutually exclusive")
	case f.has(checkpointJSON) && f.has(checkpointFile):
		return errors.New("checkpoint preload options are mutually exclusive")
	case len(f.preloads) > 1:
		return errors.New("state preload and checkpoint preload are mutually exclusive")
	}
	return nil
}

// preload loads the one preload that is given, if any.
func (f flags) preload(opt Options) error {
	for name, value := range f.preloads {
		data := []byte(value)
		if name == stateFile || name == checkpointFile {
			var err error
			if data, err = opt.ReadFile(value); err != nil {
				return err
			}
		}
		s, err := parsePreload(name, data)
		if err != nil {
			return err
		}
		return opt.Engine.Load(s)
	}
	return nil
}

func parsePreload(name string, data []byte) (directive.Session, error) {
	if name == checkpointJSON || name == checkpointFile {
		return directive.ImportCheckpoint(data)
	}
	state, err := directive.ImportJSON(data)
	return directive.Session{State: state}, err
}
