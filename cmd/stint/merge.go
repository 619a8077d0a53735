package main

import (
	"bytes"
	"fmt"

	"stint/ledger"
)

// mergeLedgers returns what a person made of base together with what tasks.md has become
// meanwhile. What was only appended there comes after the person's text. Otherwise the
// sections are compared, and the texts between them: what one side has changed, added or
// deleted counts. The error names what both sides have changed in different ways.
func mergeLedgers(base, edited, current []byte) ([]byte, error) {
	if bytes.Equal(current, base) || bytes.Equal(current, edited) {
		return edited, nil
	}
	if added, ok := bytes.CutPrefix(current, base); ok && (added[0] == '\n' || len(endLine(base)) == len(base)) {
		return append(endLine(edited), added...), nil
	}
	order, was := blocksOf(base)
	names, mine := blocksOf(edited)
	others, theirs := blocksOf(current)
	place := map[string]int{}
	for i, name := range order {
		place[name] = i
	}
	last, above := 0, ""
	below := map[string][]string{} // the blocks that mine does not have, by the one above them that it has
	for _, name := range others {
		if i, ok := place[name]; ok && i < last {
			return nil, fmt.Errorf("somebody else has moved %s meanwhile", name)
		} else if ok {
			last = i
		}
		if _, ok := mine[name]; ok {
			above = name
		} else {
			below[above] = append(below[above], name)
		}
	}
	var merged []byte
	for _, at := range append([]string{""}, names...) {
		for _, name := range append([]string{at}, below[at]...) {
			block := mine[name]
			if block == was[name] {
				block = theirs[name]
			} else if theirs[name] != was[name] && theirs[name] != block {
				return nil, fmt.Errorf("somebody else has changed %s meanwhile, and so have you", name)
			}
			merged = append(merged, block...)
		}
	}
	return merged, nil
}

// blocksOf splits a ledger into its sections and the texts around them. It returns the
// names of these blocks in file order, and what they are; none is empty.
func blocksOf(data []byte) (names []string, blocks map[string]string) {
	data = endLine(data) // else the last block would run into one that is put below it
	blocks = map[string]string{}
	add := func(name string, from, to int64) {
		if from < to {
			names, blocks[name] = append(names, name), string(data[from:to])
		}
	}
	above, pos := "the text at the top", int64(0)
	seen := map[string]int{}
	for _, s := range ledger.Parse(data).Sections {
		add(above, pos, s.Off)
		name := fmt.Sprintf("%s %s", s.Kind, s.ID)
		if s.Seq > 0 {
			name += fmt.Sprintf(" (record %d)", s.Seq)
		}
		if seen[name]++; seen[name] > 1 {
			name += fmt.Sprintf(", number %d", seen[name])
		}
		pos = s.Off + int64(len(s.Raw))
		add(name, s.Off, pos)
		above = "the text below " + name
	}
	add(above, pos, int64(len(data)))
	return names, blocks
}

// endLine returns a copy of text that ends with a newline, unless it is empty.
func endLine(text []byte) []byte {
	text = bytes.Clone(text)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	return text
}
