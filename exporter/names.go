package exporter

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
)

// maxName bounds the name of a folder that is made of a scope. File systems
// take 255 bytes, S3 takes 1,024 for the whole path.
const maxName = 200

// shortened marks a name that was cut; a tilde of the text itself is escaped.
const shortened = "~"

// pathName writes a text as one element of a path, the way Hive escapes
// partition values, which is that of URLs: slashes, quotes and emoji make no
// other folder. An = is escaped too, or DuckDB takes it for another partition.
// A name that would be longer than maxName bytes keeps its begin and gets the
// sha256 of the whole text behind a tilde. Two texts never share a name: only
// cut names hold a bare tilde, and cut names differ in their digest.
func pathName(text string) string {
	name := strings.NewReplacer("+", "%20", shortened, "%7E").Replace(url.QueryEscape(text))
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(text))
	digest := shortened + hex.EncodeToString(sum[:])
	cut := maxName - len(digest)
	for i := cut - 2; i < cut; i++ { // not within %2F
		if name[i] == '%' {
			cut = i
			break
		}
	}
	return name[:cut] + digest
}

// scopeFolder is the folder of a scope's files. The manifest's partition and
// the column scope have the whole name.
func scopeFolder(scope string) string { return "scope=" + pathName(scope) + "/" }
