package prompt

import "strings"

// Quote gives a text as a quotation, line by line, so that nothing in it can pose as
// anything else than data.
func Quote(text string) string {
	var b strings.Builder
	text = strings.TrimRight(text, "\r\n")
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString(strings.TrimRight("> "+oneLine(strings.TrimSuffix(line, "\r")), " ") + "\n")
	}
	return b.String()
}
