package commands

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/internal/conversation"
)

var (
	errDomain       = errors.New("block is newer than the head turn: the logarithm of 1 + delta_t is not defined")
	errZeroDivision = errors.New("1 + ln(1 + delta_t) is zero")
	errTooLarge     = errors.New("integer too large to convert to a float")
	errDigits       = fmt.Errorf("integer of more than %d digits", maxDigits)
)

// maxDigits is the longest integer Python reads or prints.
const maxDigits = 4300

// number is a JSON number that remembers whether it was written as an integer:
// 2 and 2.0 give different records. Integers are exact.
type number struct {
	i *big.Int // nil: a float
	f float64
}

// subtract is a − b, exact between integers.
func subtract(a, b number) (number, error) {
	if a.i != nil && b.i != nil {
		return number{i: new(big.Int).Sub(a.i, b.i)}, nil
	}
	x, err := a.float()
	if err != nil {
		return number{}, err
	}
	y, err := b.float()
	return number{f: x - y}, err
}

// float converts with one rounding, half to even.
func (n number) float() (float64, error) {
	if n.i == nil {
		return n.f, nil
	}
	f, _ := new(big.Float).SetInt(n.i).Float64()
	if math.IsInf(f, 0) {
		return 0, errTooLarge
	}
	return f, nil
}

// above is Python's n > m: exact between an integer and a float, false for NaN.
func (n number) above(m number) bool {
	if n.isNaN() || m.isNaN() {
		return false
	}
	return n.big().Cmp(m.big()) > 0
}

func (n number) isNaN() bool { return n.i == nil && math.IsNaN(n.f) }

func (n number) big() *big.Float {
	if n.i != nil {
		return new(big.Float).SetInt(n.i)
	}
	return big.NewFloat(n.f)
}

// logOnePlus is ln(1 + delta). An integer beyond the range of a float goes by
// mantissa and exponent.
func logOnePlus(delta number) (float64, error) {
	if delta.i == nil {
		return logFloat(1 + delta.f)
	}
	n := number{i: new(big.Int).Add(delta.i, big.NewInt(1))}
	if n.i.Sign() <= 0 {
		return 0, errDomain
	}
	if f, err := n.float(); err == nil {
		return conversation.Ln(f), nil
	}
	mant := new(big.Float)
	exp := new(big.Float).SetInt(n.i).MantExp(mant)
	m, _ := mant.Float64()
	return conversation.Ln(m) + float64(conversation.Ln(2)*float64(exp)), nil
}

func logFloat(x float64) (float64, error) {
	switch {
	case math.IsNaN(x), math.IsInf(x, 1):
		return x, nil
	case x <= 0:
		return 0, errDomain
	}
	return conversation.Ln(x), nil
}

// json is the number as Python prints it in JSON.
func (n number) json() (string, error) {
	if n.i == nil {
		return jsonFloat(n.f), nil
	}
	s := n.i.String()
	if len(strings.TrimPrefix(s, "-")) > maxDigits {
		return "", errDigits
	}
	return s, nil
}

// floatText is Python's repr: the shortest digits, always with a point or an
// exponent, the exponent form below 1e-4 and from 1e16 on.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	exp, _ := strconv.Atoi(s[strings.IndexByte(s, 'e')+1:])
	if f != 0 && (exp < -4 || exp >= 16) {
		return s
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// jsonFloat is floatText with JSON's names for what is not finite.
func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatText(f)
}

// round4 rounds to four decimals from the exact binary value, ties to even;
// multiplying by 10,000 first would round twice.
func round4(f float64) string {
	if !math.IsNaN(f) && !math.IsInf(f, 0) {
		f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', 4, 64), 64)
	}
	return jsonFloat(f)
}

// writeString writes a JSON string in ASCII: \uXXXX in lower-case hex for
// everything else, DEL included, pairs of surrogates beyond U+FFFF.
func writeString(w *bytes.Buffer, s string) {
	w.WriteByte('"')
	for len(s) > 0 {
		r, size := decodeRune(s)
		s = s[size:]
		switch {
		case strings.ContainsRune("\"\\", r):
			w.WriteByte('\\')
			w.WriteRune(r)
		case strings.ContainsRune("\n\r\t\b\f", r):
			w.WriteByte('\\')
			w.WriteByte("nrtbf"[strings.IndexRune("\n\r\t\b\f", r)])
		case r >= 0x20 && r < 0x7F:
			w.WriteRune(r)
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(w, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			fmt.Fprintf(w, `\u%04x`, r)
		}
	}
	w.WriteByte('"')
}
