package exporter

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"sort"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// LineKey identifies a rated line: of the lines that count, no two have the
// same key. It names no run and no revision, so the line that a reprocess
// writes in place of another has the same id.
type LineKey struct {
	Region, Scope    string
	Begin            time.Time
	Metric, Resource string
	Attributes       map[string]string
	Part             uint16
}

// LineNamespace is the UUIDv5 namespace of line ids.
var LineNamespace = uuid.MustParse("d3b2a1f0-3c5e-5f7a-8b9c-1e2f3a4b5c6d")

// LineID is the UUIDv5 of a line's key written as a JSON array without spaces:
// [region,scope,begin,metric,resource,attributes,part], begin like
// 2026-11-01T00:00:00Z, the attributes' names sorted, only quotes, backslashes
// and control characters escaped. Python's
// json.dumps(key, separators=(',', ':'), ensure_ascii=False) writes the same.
func LineID(k LineKey) uuid.UUID {
	name := append([]byte(nil), '[')
	name = append(appendQuoted(name, k.Region), ',')
	name = append(appendQuoted(name, k.Scope), ',')
	name = append(appendQuoted(name, k.Begin.UTC().Format(time.RFC3339)), ',')
	name = append(appendQuoted(name, k.Metric), ',')
	name = append(appendQuoted(name, k.Resource), ',')
	names := make([]string, 0, len(k.Attributes))
	for n := range k.Attributes {
		names = append(names, n)
	}
	sort.Strings(names)
	name = append(name, '{')
	for i, n := range names {
		if i > 0 {
			name = append(name, ',')
		}
		name = append(appendQuoted(name, n), ':')
		name = appendQuoted(name, k.Attributes[n])
	}
	name = append(name, '}', ',')
	name = strconv.AppendUint(name, uint64(k.Part), 10)
	name = append(name, ']')
	return uuid.NewSHA1(LineNamespace, name)
}

// appendLineID appends the text of the UUIDv5 whose name starts at
// named[16:]; the namespace stands before it.
func appendLineID(dst, named []byte) []byte {
	sum := sha1.Sum(named)
	sum[6] = sum[6]&0x0f | 0x50
	sum[8] = sum[8]&0x3f | 0x80
	dst = hex.AppendEncode(dst, sum[:4])
	dst = append(dst, '-')
	dst = hex.AppendEncode(dst, sum[4:6])
	dst = append(dst, '-')
	dst = hex.AppendEncode(dst, sum[6:8])
	dst = append(dst, '-')
	dst = hex.AppendEncode(dst, sum[8:10])
	dst = append(dst, '-')
	return hex.AppendEncode(dst, sum[10:16])
}

const hexDigits = "0123456789abcdef"

// appendQuoted appends text as a JSON string with the fewest escapes, which is
// the canonical form here. Bytes that are no UTF-8 become U+FFFD: files hold
// text that every reader accepts.
func appendQuoted[T string | []byte](dst []byte, text T) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(text); {
		b := text[i]
		if b < utf8.RuneSelf {
			i++
			switch {
			case b == '"' || b == '\\':
				dst = append(dst, '\\', b)
			case b >= 0x20:
				dst = append(dst, b)
			case b == '\b':
				dst = append(dst, '\\', 'b')
			case b == '\f':
				dst = append(dst, '\\', 'f')
			case b == '\n':
				dst = append(dst, '\\', 'n')
			case b == '\r':
				dst = append(dst, '\\', 'r')
			case b == '\t':
				dst = append(dst, '\\', 't')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(string(text[i:min(i+utf8.UTFMax, len(text))]))
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, "\ufffd"...)
		} else {
			dst = append(dst, text[i:i+size]...)
		}
		i += size
	}
	return append(dst, '"')
}

// fieldsJSON is the description of the columns that files carry as metadata.
func fieldsJSON(s Schema) string {
	text, err := json.Marshal(s.Fields)
	if err != nil {
		panic(err) // strings and booleans only
	}
	return string(text)
}
