package ledger

import (
	"bytes"
	"fmt"
	"strconv"
)

// FormatVersion is the version of the grammar that this package writes. A file that names a newer one is refused.
const FormatVersion = 1

// MaxID bounds the id of a record, in bytes.
const MaxID = 128

// ValidID reports whether id can name a record: 1 to 128 of A-Z a-z 0-9 . _ : -
func ValidID[T string | []byte](id T) bool {
	if len(id) == 0 || len(id) > MaxID {
		return false
	}
	for i := range len(id) {
		if c := id[i]; !isAlnum(c) && c != '.' && c != '_' && c != ':' && c != '-' {
			return false
		}
	}
	return true
}

// validKey reports whether key can name a field: a letter, then letters, digits, . _ -
func validKey[T string | []byte](key T) bool {
	if len(key) == 0 || !isAlnum(key[0]) || key[0] <= '9' {
		return false
	}
	for i := range len(key) {
		if c := key[i]; !isAlnum(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// AppendRecord appends r as stint writes it, with an empty line after it. The
// error returns what of r cannot be written; dst is then returned as it was.
func AppendRecord(dst []byte, r *Record) ([]byte, error) {
	return AppendPart(dst, r, 0)
}

// AppendPart also says how many records of the same change follow.
func AppendPart(dst []byte, r *Record, more int) ([]byte, error) {
	if !validKey(string(r.Kind)) || !ValidID(r.ID) {
		return dst, fmt.Errorf("a record cannot be headed %q %q: an id is 1 to %d of A-Z a-z 0-9 . _ : -", r.Kind, r.ID, MaxID)
	}
	if r.Seq > MaxSeq {
		return dst, fmt.Errorf("%s %s: record %d is beyond the last number that there can be", r.Kind, r.ID, r.Seq)
	}
	for _, f := range r.Fields {
		if !validKey(f.Key) || f.Key == KeySeq {
			return dst, fmt.Errorf("%s %s: %q cannot be the key of a field", r.Kind, r.ID, f.Key)
		}
	}
	dst = append(append(append(append(dst, hashes...), r.Kind...), ' '), r.ID...)
	dst = append(strconv.AppendUint(append(append(dst, '\n'), seqField...), r.Seq, 10), '\n')
	for _, f := range r.Fields {
		dst = appendField(dst, f)
	}
	dst = strconv.AppendUint(append(dst, endOpen...), r.Seq, 10)
	if more > 0 {
		dst = append(strconv.AppendInt(append(dst, ", "...), int64(more), 10), moreWord...)
	}
	return append(append(dst, endClose...), "\n\n"...), nil
}

func appendField(dst []byte, f Pair) []byte {
	dst = append(dst, "- "...)
	dst = append(dst, f.Key...)
	dst = append(dst, ':')
	if f.Value == "" {
		return append(dst, '\n')
	}
	dst = append(dst, ' ')
	switch formOf(f.Value) {
	case formBlock:
		dst = append(dst, markBlock+"\n"...)
		return appendBlock(dst, f.Value)
	case formEscaped:
		dst = append(dst, markEscaped+"\n"...)
		return appendBlock(dst, escape(f.Value))
	default:
		dst = append(dst, f.Value...)
		return append(dst, '\n')
	}
}

// AppendSection appends r as a person writes a section, without seq and end line.
// If r cannot be written, the error names the field, and dst is returned as it was.
func AppendSection(dst []byte, r *Record) ([]byte, error) {
	if _, err := AppendRecord(nil, r); err != nil {
		return dst, err
	}
	dst = fmt.Appendf(dst, "%s%s\n", hashes, r.Name())
	for _, f := range r.Fields {
		dst = appendField(dst, f)
	}
	return dst, nil
}

// FormatFields returns fields as they stand below a heading.
func FormatFields(list []Pair) string {
	var text []byte
	for _, f := range list {
		text = appendField(text, f)
	}
	return string(bytes.TrimRight(text, "\n"))
}

// ParseFields is the inverse of FormatFields; nil if text is not what that returns.
func ParseFields(text string) (list []Pair) {
	var s Section
	if _, _, err := scanFields([]byte(text+"\n"+string(endOpen)+"\n"), 0, &s); err != nil || text == "" {
		return nil
	}
	r := s.Record()
	return r.Fields
}
