package static

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// A safetensors file: eight bytes with the length of the header, the header (JSON: type, shape and place of each tensor by
// name), and the numbers.

// tensor has its numbers as float32. A table of int8 keeps the bytes of the file, a quarter of the memory.
type tensor struct {
	shape   []int
	numbers []float32
	small   []byte
}

// tableName names the tensor with the vectors, as model2vec writes it.
const tableName = "embeddings"

// MaxHeader is the size of the largest header, in bytes.
const maxHeader = 16 << 20

// readTensors reads those tensors whose numbers fit float32, and a digest of the file.
func readTensors(file string) (map[string]tensor, uint64, error) {
	body, err := readFile(file)
	if err != nil {
		return nil, 0, err
	}
	tensors, err := parseTensors(body)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %s: %w", ErrModel, file, err)
	}
	return tensors, xxhash.Sum64(body), nil
}

func parseTensors(body []byte) (map[string]tensor, error) {
	if len(body) < 8 {
		return nil, fmt.Errorf("%d bytes, expected a safetensors file", len(body))
	}
	n := binary.LittleEndian.Uint64(body)
	if n > maxHeader || n > uint64(len(body)-8) {
		return nil, fmt.Errorf("a header of %d bytes in a file of %d, expected a safetensors file", n, len(body))
	}
	header, data := map[string]json.RawMessage{}, body[8+n:]
	if err := json.Unmarshal(body[8:8+n], &header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	out := map[string]tensor{}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if name == "__metadata__" {
			continue
		}
		t, known, err := parseTensor(header[name], data, name == tableName)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", name, err)
		}
		if known {
			out[name] = t
		}
	}
	return out, nil
}

// parseTensor reads a tensor. It keeps the bytes of a table of int8.
func parseTensor(row json.RawMessage, data []byte, table bool) (t tensor, known bool, err error) {
	var at struct {
		Dtype   string   `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets []uint64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(row, &at); err != nil {
		return t, false, err
	}
	size, decode := numbersOf(at.Dtype)
	if decode == nil {
		return t, false, nil
	}
	count := 1
	for _, n := range at.Shape {
		if n < 0 || n > 0 && count > len(data)/n {
			return t, false, fmt.Errorf("shape %v does not fit %d bytes", at.Shape, len(data))
		}
		count *= n
	}
	if len(at.Offsets) != 2 || at.Offsets[0] > at.Offsets[1] || at.Offsets[1] > uint64(len(data)) || at.Offsets[1]-at.Offsets[0] != uint64(count*size) {
		return t, false, fmt.Errorf("%d numbers of %d bytes at %v of %d", count, size, at.Offsets, len(data))
	}
	t.shape = at.Shape
	if table && at.Dtype == "I8" {
		t.small = data[at.Offsets[0]:at.Offsets[1]]
		return t, true, nil
	}
	t.numbers = make([]float32, count)
	for i, b := 0, data[at.Offsets[0]:at.Offsets[1]]; i < count; i++ {
		t.numbers[i] = decode(b[i*size:])
	}
	return t, true, nil
}

// numbersOf is the size of a type of numbers, and how one is read.
func numbersOf(dtype string) (size int, decode func([]byte) float32) {
	le := binary.LittleEndian
	switch dtype {
	case "F32":
		return 4, func(b []byte) float32 { return math.Float32frombits(le.Uint32(b)) }
	case "F64":
		return 8, func(b []byte) float32 { return float32(math.Float64frombits(le.Uint64(b))) }
	case "F16":
		return 2, func(b []byte) float32 { return half(le.Uint16(b)) }
	case "BF16":
		return 2, func(b []byte) float32 { return math.Float32frombits(uint32(le.Uint16(b)) << 16) }
	case "I8":
		return 1, func(b []byte) float32 { return float32(int8(b[0])) }
	case "I32":
		return 4, func(b []byte) float32 { return float32(int32(le.Uint32(b))) }
	case "I64":
		return 8, func(b []byte) float32 { return float32(int64(le.Uint64(b))) }
	}
	return 0, nil
}

// half reads a number of 16 bits: a sign, five bits of exponent, ten of fraction.
func half(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, int(h>>10&31), uint32(h&1023)
	switch exponent {
	case 0:
		f := float32(math.Ldexp(float64(fraction), -24))
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | uint32(exponent-15+127)<<23 | fraction<<13)
}
