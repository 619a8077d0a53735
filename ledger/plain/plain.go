// Package plain writes values as plain bytes, and reads them back. What a value is made of is listed once, for both
// ways: each function writes what it is given pointers to, or sets it. The bytes say neither names nor types, so they are
// for caches alone: who reads makes sure that they are those that the same program has written.
package plain

import (
	"encoding/binary"
	"maps"
	"slices"
)

// A Coder writes behind Bytes, or reads from their beginning.
type Coder struct {
	Bytes []byte
	Reads bool
}

// Numbers are whole numbers; small ones take a byte.
func Numbers[T ~int | ~int64 | ~uint8 | ~uint32 | ~uint64](c *Coder, list ...*T) {
	for _, v := range list {
		if !c.Reads {
			c.Bytes = binary.AppendUvarint(c.Bytes, uint64(*v))
			continue
		}
		x, n := binary.Uvarint(c.Bytes)
		*v, c.Bytes = T(x), c.Bytes[n:]
	}
}

// Flags are up to 64 times yes or no.
func (c *Coder) Flags(list ...*bool) {
	bits := uint64(0)
	for i, is := range list {
		if *is {
			bits |= 1 << i
		}
	}
	Numbers(c, &bits)
	for i, is := range list {
		*is = bits&(1<<i) != 0
	}
}

// Texts are strings of any bytes.
func (c *Coder) Texts(list ...*string) {
	for _, s := range list {
		n := len(*s)
		if Numbers(c, &n); !c.Reads {
			c.Bytes = append(c.Bytes, *s...)
			continue
		}
		*s, c.Bytes = string(c.Bytes[:n]), c.Bytes[n:]
	}
}

// Raw are as many bytes as there is room for.
func (c *Coder) Raw(b []byte) {
	if !c.Reads {
		c.Bytes = append(c.Bytes, b...)
		return
	}
	c.Bytes = c.Bytes[copy(b, c.Bytes):]
}

// List is for the items of a list.
func List[T any](c *Coder, list *[]T, item func(*T)) {
	n := len(*list)
	if Numbers(c, &n); c.Reads {
		*list = make([]T, n)
	}
	for i := range *list {
		item(&(*list)[i])
	}
}

// Map is for the entries of a map, which are read into it.
func Map[K comparable, V any](c *Coder, m map[K]V, entry func(*K, *V)) {
	keys := slices.Collect(maps.Keys(m))
	List(c, &keys, func(k *K) {
		v := m[*k]
		entry(k, &v)
		m[*k] = v
	})
}
