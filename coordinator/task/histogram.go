package task

import "slices"

// A Histogram counts values by size. It is not safe for concurrent use.
type Histogram struct {
	Bounds []float64 // of the buckets, each the largest value in it, ascending; never changed
	Counts []uint64  // by bucket, and last those above all bounds
	Sum    float64   // of all values
}

// NewHistogram returns a histogram with these buckets.
func NewHistogram(bounds []float64) Histogram {
	return Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

// Observe counts a value.
func (h *Histogram) Observe(v float64) {
	i, _ := slices.BinarySearch(h.Bounds, v)
	h.Counts[i]++
	h.Sum += v
}

// Clone returns a copy that counts on its own.
func (h *Histogram) Clone() Histogram {
	return Histogram{Bounds: h.Bounds, Counts: slices.Clone(h.Counts), Sum: h.Sum}
}
