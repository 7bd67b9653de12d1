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

	"github.com/ratebatch/ratebatch/ratebatch/store"
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

// IDOf is the id of a line that was read from the store.
func IDOf(l *store.FoundLine) uuid.UUID {
	return LineID(LineKey{Region: l.Region, Scope: l.Scope, Begin: l.Begin, Metric: l.Metric, Resource: l.Resource, Attributes: l.Attributes, Part: l.Part})
}

// LineNamespace is the UUIDv5 namespace that line ids start from.
var LineNamespace = uuid.MustParse("d3b2a1f0-3c5e-5f7a-8b9c-1e2f3a4b5c6d")

// LineID is the id of a line: two UUIDv5 on top of each other. The first one,
// in LineNamespace, names the series, that is the key without begin and part,
// written as a JSON array without spaces:
//
//	["RegionOne","project","instance","vm-1",{"flavor_name":"m1.small","vcpus":"2"}]
//
// with the attributes' names sorted and only quotes, backslashes and control
// characters escaped; Python's json.dumps(key, separators=(',', ':'),
// ensure_ascii=False) writes the same. The second one, in the namespace of the
// series, names the line: 2026-11-01T00:00:00Z/0, begin and part. A series
// goes on for months, so all but the last 22 bytes are hashed once per file
// and not once per line.
func LineID(k LineKey) uuid.UUID {
	name := append([]byte(nil), '[')
	name = append(appendQuoted(name, k.Region), ',')
	name = append(appendQuoted(name, k.Scope), ',')
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
	series := uuid.NewSHA1(LineNamespace, append(name, '}', ']'))
	name = k.Begin.UTC().AppendFormat(name[:0], time.RFC3339)
	name = strconv.AppendUint(append(name, '/'), uint64(k.Part), 10)
	return uuid.NewSHA1(series, name)
}

// appendUUID appends the text of the UUIDv5 with the name named[16:]; the
// namespace stands before it.
func appendUUID(dst, named []byte) []byte {
	sum := sha1.Sum(named)
	sum[6] = sum[6]&0x0f | 0x50
	sum[8] = sum[8]&0x3f | 0x80
	at := len(dst)
	dst = append(dst, "00000000-0000-0000-0000-000000000000"...)
	out := dst[at:]
	hex.Encode(out, sum[:4])
	hex.Encode(out[9:], sum[4:6])
	hex.Encode(out[14:], sum[6:8])
	hex.Encode(out[19:], sum[8:10])
	hex.Encode(out[24:], sum[10:16])
	return dst
}

const hexDigits = "0123456789abcdef"

// appendQuoted appends text as a JSON string with the fewest escapes, which is
// the canonical form here. Bytes that are no UTF-8 become what validText
// makes of them: files hold text that every reader accepts.
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
			dst = appendBroken(dst, b)
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
