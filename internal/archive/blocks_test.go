package archive

import (
	"bytes"
	"io"
	"testing"
	"unsafe"

	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
)

// countedFile is a file in memory that counts reads.
type countedFile struct {
	wal.File
	data  []byte
	reads int
}

func (f *countedFile) ReadAt(b []byte, off int64) (int, error) {
	f.reads++
	return bytes.NewReader(f.data).ReadAt(b, off)
}

// What an interrupted archiving left behind the last archived leaf is overwritten by the next one. A block that holds some
// of it must not show it once the file goes further.
func TestBlocksShowNothingBehindTheArchive(t *testing.T) {
	f := &countedFile{data: bytes.Repeat([]byte{1}, 2*blockSize)}
	var c blocks
	b := make([]byte, 100)
	require.NoError(t, c.readAt(0, f, b, 0, 1000))
	require.NoError(t, c.readAt(0, f, b, 900, 1000))
	require.Equal(t, 1, f.reads)

	copy(f.data[1000:], bytes.Repeat([]byte{2}, 500)) // the next archiving
	require.NoError(t, c.readAt(0, f, b, 950, 1500))
	require.Equal(t, append(bytes.Repeat([]byte{1}, 50), bytes.Repeat([]byte{2}, 50)...), b)
	require.NoError(t, c.readAt(0, f, b, 1400, 1500))
	require.Equal(t, bytes.Repeat([]byte{2}, 100), b)
	require.Equal(t, 2, f.reads)

	// The control: a caller that says too much is shown what is not there any more.
	require.NoError(t, c.readAt(0, f, b, 1900, 2500))
	copy(f.data[1900:], bytes.Repeat([]byte{3}, 100))
	require.NoError(t, c.readAt(0, f, b, 1900, 2500))
	require.NotEqual(t, f.data[1900:2000], b)
}

func TestBlocksReadWhatTheFileHas(t *testing.T) {
	f := &countedFile{data: make([]byte, 3*blockSize+50)}
	for i := range f.data {
		f.data[i] = byte(i * 7 >> 3)
	}
	var c blocks
	size := int64(len(f.data))
	for off := int64(0); off < size; off += 37 {
		for _, n := range []int64{1, 32, 256, blockSize, 2 * blockSize} {
			b := make([]byte, n)
			err := c.readAt(5, f, b, off, size)
			if off+n > size {
				require.ErrorIs(t, err, io.EOF)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, f.data[off:off+n], b)
		}
	}
	other := &countedFile{data: make([]byte, blockSize)}
	b := make([]byte, 8)
	require.NoError(t, c.readAt(6, other, b, 8, blockSize)) // of another segment
	require.Equal(t, make([]byte, 8), b)
	other.data = other.data[:10]
	require.ErrorIs(t, c.readAt(7, other, b, 8, blockSize), io.EOF)
	require.NoError(t, c.readAt(7, other, b, 2, blockSize), "what was asked for is whole, the block is not")
}

// The cache holds at most a quarter of a small file, and of a large one as much as it has slots.
func TestBlocksAreBoundedByTheFile(t *testing.T) {
	for _, c := range []struct {
		of           uint64
		blocks, held int
	}{
		{0, 4, 4}, {0, 16, 16}, {0, 100, 16}, {0, 170, 32}, {0, 1000, 128}, {ofIndex, 1000, 128},
		{0, 5000, blockSlots}, {7, 1000, blockSlots},
	} {
		f := &countedFile{data: make([]byte, c.blocks*blockSize)}
		var cache blocks
		b := make([]byte, 8)
		for i := range c.blocks {
			require.NoError(t, cache.readAt(c.of, f, b, int64(i*blockSize), int64(len(f.data))))
		}
		held := 0
		for i := range cache.slots {
			if cache.slots[i].Load() != nil {
				held++
			}
		}
		require.Equal(t, c.held, held, "%d blocks of %d", c.blocks, c.of)
	}
	require.LessOrEqual(t, unsafe.Sizeof(fileBlock{}), uintptr(4<<10), "a block takes one page of memory")
}
