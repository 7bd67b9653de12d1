package ratebatch

import (
	"fmt"
	"strconv"
	"strings"
)

// Shorten cuts a text of someone else's for a message, after at most longest
// bytes and between two characters; … says that there was more.
func Shorten(text string, longest int) string {
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "") + "…"
}

// Quote is a text as messages about plans and metrics show it: in quotation
// marks, the first 60 bytes.
func Quote(text string) string { return strconv.Quote(Shorten(text, 60)) }

// Some lists the first names, at most so many, and says how many more there are.
func Some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
