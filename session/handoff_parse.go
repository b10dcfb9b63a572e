package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// ParsePacket reads a packet from JSON and checks it against the schema: all 18 fields, no others at any depth, no
// null, the two enumerations. The error reports every fault and matches ErrPacket.
func ParsePacket(raw []byte) (Packet, error) {
	var tree any
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&tree); err != nil {
		return Packet{}, fmt.Errorf("%w: %w", ErrPacket, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Packet{}, fmt.Errorf("%w: more text after the packet", ErrPacket)
	}
	faults := memberFaults("packet", tree, reflect.TypeFor[Packet]())
	var p Packet
	if err := json.Unmarshal(raw, &p); err == nil {
		faults = append(faults, p.Validate())
	} else if len(faults) == 0 {
		faults = append(faults, fmt.Errorf("%w: %w", ErrPacket, err))
	}
	if err := errors.Join(faults...); err != nil {
		return Packet{}, err
	}
	return p, nil
}

// memberFaults walks the decoded JSON along the Go type and reports members that are absent, null
// or unknown. encoding/json alone ignores case and leaves absent members at zero.
func memberFaults(path string, v any, t reflect.Type) (faults []error) {
	switch t.Kind() {
	case reflect.Struct:
		members, ok := v.(map[string]any)
		if !ok {
			return []error{fmt.Errorf("%w: %s must be an object", ErrPacket, path)}
		}
		known := map[string]bool{}
		for i := range t.NumField() {
			name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			got, given := members[name]
			known[name] = true
			switch {
			case got != nil:
				faults = append(faults, memberFaults(path+"."+name, got, t.Field(i).Type)...)
			case given || options == "":
				faults = append(faults, fmt.Errorf("%w: %s.%s is missing or null", ErrPacket, path, name))
			}
		}
		for _, k := range sortedKeys(members) {
			if !known[k] {
				faults = append(faults, fmt.Errorf("%w: %s is not in the schema", ErrPacket, member(path, k)))
			}
		}
	case reflect.Slice:
		items, ok := v.([]any)
		if !ok {
			return []error{fmt.Errorf("%w: %s must be an array", ErrPacket, path)}
		}
		for i, item := range items {
			at := fmt.Sprintf("%s[%d]", path, i)
			if item == nil {
				faults = append(faults, fmt.Errorf("%w: %s is null", ErrPacket, at))
				continue
			}
			faults = append(faults, memberFaults(at, item, t.Elem())...)
		}
	case reflect.String:
		if _, ok := v.(string); !ok {
			return []error{fmt.Errorf("%w: %s must be a text", ErrPacket, path)}
		}
	}
	return faults
}

var plainMember = expression(`^[A-Za-z0-9_-]+$`)

// member is the path of a member, its name quoted where that is not a plain one.
func member(path, name string) string {
	if plainMember().MatchString(name) {
		return path + "." + name
	}
	return path + "[" + strconv.QuoteToASCII(name) + "]"
}

// Validate checks the enumerations.
func (p Packet) Validate() error {
	var faults []error
	if !slices.Contains(intentVerbs, p.ActiveIntent.PrimaryIntent) {
		faults = append(faults, fmt.Errorf("%w: primary_intent %q is not one of %s", ErrPacket, p.ActiveIntent.PrimaryIntent, strings.Join(intentVerbs, ", ")))
	}
	for i, s := range p.VerifiedSources {
		if !slices.Contains(sourceStates, s.State) {
			faults = append(faults, fmt.Errorf("%w: verified_sources[%d].state %q is not one of %s", ErrPacket, i, s.State, strings.Join(sourceStates, ", ")))
		}
	}
	return errors.Join(faults...)
}
