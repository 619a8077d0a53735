package ledger

import (
	"bytes"
	"hash/maphash"
	"slices"
)

// outlineBlock is how many bytes an outline remembers by one number.
const outlineBlock = 4 << 10

var outlineSeed = maphash.MakeSeed()

// An outline tells, without keeping a file's content, whether other bytes are the
// beginning of it. It lives as long as the process.
type outline struct {
	sums []uint64 // of the whole blocks, but for the last
	tail []byte   // what follows: at most two blocks
}

// Write adds bytes behind the file. It never fails.
func (o *outline) Write(data []byte) (int, error) {
	o.add(data)
	return len(data), nil
}

func (o *outline) add(data []byte) {
	for len(data) > 0 {
		if len(o.tail) == 0 && len(data) >= 2*outlineBlock {
			o.sums = append(o.sums, maphash.Bytes(outlineSeed, data[:outlineBlock]))
			data = data[outlineBlock:]
			continue
		}
		n := min(len(data), 2*outlineBlock-len(o.tail))
		o.tail = append(o.tail, data[:n]...)
		data = data[n:]
		if len(o.tail) == 2*outlineBlock {
			o.sums = append(o.sums, maphash.Bytes(outlineSeed, o.tail[:outlineBlock]))
			o.tail = o.tail[:copy(o.tail, o.tail[outlineBlock:])]
		}
	}
}

// size gives how many bytes it is of.
func (o *outline) size() int64 { return int64(len(o.sums)*outlineBlock + len(o.tail)) }

// equals reports whether both are of the same bytes.
func (o *outline) equals(p *outline) bool {
	return slices.Equal(o.sums, p.sums) && bytes.Equal(o.tail, p.tail)
}

// beginsWith reports whether data is shorter than the file and its beginning, as
// far as the last whole block of data.
func (o *outline) beginsWith(data []byte) bool {
	if int64(len(data)) >= o.size() {
		return false
	}
	for _, sum := range o.sums {
		if len(data) < outlineBlock {
			return true
		}
		if maphash.Bytes(outlineSeed, data[:outlineBlock]) != sum {
			return false
		}
		data = data[outlineBlock:]
	}
	return bytes.HasPrefix(o.tail, data)
}

// commonEnd gives how many bytes at the end of the file are also at the end of
// data; it looks back no further than the last block.
func (o *outline) commonEnd(data []byte) int {
	n := 0
	for n < len(data) && n < len(o.tail) && data[len(data)-1-n] == o.tail[len(o.tail)-1-n] {
		n++
	}
	return n
}
