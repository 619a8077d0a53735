package wire

// A Topic is a part of the manual, which the page shows too.
type Topic struct {
	Name     string // as in stint help NAME
	Title    string // what it is about
	Markdown []byte
}
