// Package ledger is the grammar of the two files that keep records: a Markdown file that
// people read and edit, and a journal beside it that makes every acknowledged record durable.
// Package journal writes them, package reconcile finds what a person changed.
//
// # Two files, one truth
//
// journal.md holds what was acknowledged, byte for byte, and is written by one process alone. tasks.md holds
// the same records for people: what a person changes there becomes a record of its own. If the journal is
// lost, tasks.md alone rebuilds it. Records are only ever appended; a later record of the same id changes
// only the fields that it names. The order in the file decides, not the timestamps.
//
// # Grammar
//
// The first line of a file says what it is, <!-- stint ledger 1 --> or <!-- stint journal 1 -->
// with the version of the format; it may be missing.
//
//	file    = [BOM] { text | record }
//	record  = heading { field } end
//	heading = "## " kind " " id                     kind: Task, Job, Control
//	id      = 1 to 128 of A-Z a-z 0-9 . _ : -
//	field   = "- " key ": " value
//	        | "- " key ":"                          empty: unsets the key
//	        | "- " key ": |" { body }
//	        | "- " key ": |escaped" { body }
//	body    = "  " text | empty line                trailing empty lines are no part
//	end     = "<!-- end " seq [", " n " more"] " -->"
//
// The first field of a record that stint wrote is "seq", its number; the end line repeats it and closes the record. ", n more"
// says that the next n records belong to the same change: at the torn end of a journal they count all or not at all. A section
// without seq was written by a person: it needs no end line and ends at the next heading.
//
// A value stands on the line of its key if it is not empty, has no leading or trailing blank, no line break and is not "|" or
// "|escaped". Otherwise it is a body of lines indented by two blanks. Text that a line editor could change (CR, VT, FF, FS, GS,
// RS, NEL, U+2028, U+2029, NUL, invalid UTF-8, blanks at the end of a line, line breaks at the end) is written as "|escaped",
// where \\ \n \r \t \v \f \xNN \uNNNN stand for themselves. So every text comes back byte for byte, and no text can begin a
// line at column 0: it can never add or change a record.
//
// # What is a record
//
// A column-0 heading whose next line that is not blank is "- seq:" is a record whatever surrounds it. Without seq it must be a
// top-level heading of the document as CommonMark sees it: not inside a code fence, comment, HTML block or list item. Its
// fields end at the next heading of level 1 or 2, also one that is made by a line of --- or === below its text. A person's file
// may use CRLF, a BOM, "*" or "+" bullets, tabs behind them, blanks of any kind at the ends of lines and around values, a
// closing ##, up to three blanks before the ##, and no final newline. A heading with an id that is none, and no field that
// tells of a record below it, is text.
//
// One bad record is one bad record: it is reported with file and line ([SyntaxError]) and set aside where it stands; everything
// else goes on. So is what was probably meant for a record: a section under a heading that is nearly right (##Task x,
// ### Task x), a seq without a heading, a section without seq that has an end line or a line
// that is nearly a field, fields and indented text below an end line (directly below, with the record itself), and a section
// with a mark of a merge conflict. An end line or a mark that belongs to no section is set aside alone, and so are NUL bytes in
// text, and a CR or the like with what would be a line of a record behind it. Below NUL bytes an indented heading is set aside
// too, up to the next heading at the margin: it may be of a prompt, whose record has lost its beginning in a power cut.
//
// # What is taken over
//
// A record that was taken over from a person's edit says "by: hand" and has these fields:
//
//	adopts   the digest of the section's text: the same text is never taken over twice
//	edits    the seq of the record that was edited, or the digest under which a section
//	         without seq was adopted first
//	unedited in the first of the adoptions of a record's edits, all fields of the record as it
//	         was written: a journal that is made anew of tasks.md has it so (package salvage)
//	copies   the seq of the record whose section was copied; the copy is a draft, and later
//	         edits of it are not taken over
//	ignored  the fields that stand in the section without an effect: a later section names
//	         them, an edit took them along, or an old buffer was saved
//
// A buffer is old for a field if a record that it has not, of an edit of that section, has given the field
// that value already; so whoever changes a field and changes it back has to load what was appended in
// between. A record with "adopts" and "ignored", and without "by", notes nothing else.
package ledger
