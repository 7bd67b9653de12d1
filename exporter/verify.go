package exporter

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"

	"github.com/ratebatch/ratebatch/exporter/bucket"
)

// Verified is what Verify found out about one delivery.
type Verified struct {
	Manifest string            `json:"manifest"`
	Dataset  string            `json:"dataset"`
	Month    string            `json:"month"`
	Delivery string            `json:"delivery"`
	Files    int               `json:"files"`
	Rows     uint64            `json:"rows"`
	Bytes    uint64            `json:"bytes"`
	Totals   map[string]string `json:"totals"`
	Signed   bool              `json:"signed"`
	Problems []string          `json:"problems,omitempty"`
}

// Verify checks every current delivery below a bucket against its manifest: the
// signature if a key is given, each file's size and checksum, and for Parquet
// also the rows, the columns and the sums of money. It needs no ClickHouse.
//
// A file in a delivery's folder that the manifest does not list is a problem and
// no warning: Spark, DuckDB and external tables are pointed at the folder, and
// would count it.
func Verify(ctx context.Context, b bucket.Bucket, key ed25519.PublicKey) ([]Verified, error) {
	var out []Verified
	for object, err := range b.List(ctx, "v1/") {
		if err != nil {
			return out, err
		}
		if !strings.HasSuffix(object.Name, "/"+ManifestName) {
			continue
		}
		v, err := VerifyDelivery(ctx, b, strings.TrimSuffix(object.Name, ManifestName), key)
		if err != nil {
			return out, err
		}
		out = append(out, v)
	}
	return out, nil
}

// VerifyDelivery checks the current delivery below one folder.
func VerifyDelivery(ctx context.Context, b bucket.Bucket, folder string, key ed25519.PublicKey) (Verified, error) {
	v := Verified{Manifest: folder + ManifestName, Totals: map[string]string{}}
	m, text, err := ReadManifest(ctx, b, folder)
	if err != nil {
		v.Problems = append(v.Problems, err.Error())
		return v, nil
	}
	v.Dataset, v.Month, v.Delivery, v.Files = m.Dataset, m.Month, m.Delivery, len(m.Files)
	problem := func(format string, args ...any) { v.Problems = append(v.Problems, fmt.Sprintf(format, args...)) }
	if key != nil {
		if err := verifySignature(ctx, b, folder, key, text); err != nil {
			problem("%v", err)
		} else {
			v.Signed = true
		}
	}
	if id := m.Schema.ID(); id != m.SchemaID {
		problem("the manifest's columns have schema id %s, it says %s", id, m.SchemaID)
	}
	totals := map[string]*wide{}
	whole := true // every file could be read: else its money is missing, which would be said twice
	for _, f := range m.Files {
		if err := verifyFile(ctx, b, folder, m, f, totals); err != nil {
			if context.Cause(ctx) != nil {
				return v, err
			}
			problem("%s: %v", f.Path, err)
			whole = false
		}
		v.Rows += f.Rows
		v.Bytes += f.Bytes
	}
	for _, delivery := range m.deliveries() {
		strays, err := unlisted(ctx, b, folder, m, "delivery="+delivery+"/")
		if err != nil {
			return v, err
		}
		for _, stray := range strays {
			problem("%s: the manifest does not list it, and a reader of the whole folder would count it: move it away", stray)
		}
	}
	if v.Rows != m.Rows {
		problem("the files have %d rows, the manifest %d", v.Rows, m.Rows)
	}
	if whole && m.Format == Parquet && moneyColumns(m.Dataset) != [2]string{} {
		for currency, total := range totals {
			v.Totals[currency] = total.decimal().String()
		}
		for _, currency := range slices.Sorted(maps.Keys(m.Totals)) {
			if got, ok := v.Totals[currency]; ok && got != m.Totals[currency] || !ok && m.Totals[currency] != "0" {
				problem("the files add up to %s %s, the manifest to %s", got, currency, m.Totals[currency])
			}
		}
		for currency, total := range v.Totals {
			// What was taken back whole is still in the files: by an append delivery, or
			// by a correction that amounts to nothing.
			if _, ok := m.Totals[currency]; !ok && total != "0" {
				problem("the files have %s, the manifest does not", currency)
			}
		}
	}
	return v, nil
}

// unlisted are the files below a prefix of the manifest's folder that it does not
// name, but those that readers of whole folders skip, such as Spark's _SUCCESS.
func unlisted(ctx context.Context, b bucket.Bucket, folder string, m *Manifest, prefix string) ([]string, error) {
	listed := map[string]bool{}
	for _, f := range m.Files {
		listed[f.Path] = true
	}
	var out []string
	for object, err := range b.List(ctx, folder+prefix) {
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(object.Name, folder)
		if base := path.Base(name); !listed[name] && base[0] != '_' && base[0] != '.' {
			out = append(out, name)
		}
	}
	return out, nil
}

func verifySignature(ctx context.Context, b bucket.Bucket, folder string, key ed25519.PublicKey, text []byte) error {
	in, err := b.Open(ctx, folder+SignatureName)
	if errors.Is(err, bucket.ErrNotExist) {
		return errNotSigned
	}
	if err != nil {
		return err
	}
	defer in.Close()
	signature, err := io.ReadAll(io.LimitReader(in, 1<<12))
	if err != nil {
		return err
	}
	return checkSignature(key, text, signature)
}

// moneyColumns are the columns of a dataset whose sum per currency is the
// manifest's total.
func moneyColumns(dataset string) [2]string {
	switch dataset {
	case linesSchema.Dataset, summarySchema.Dataset:
		return [2]string{"price", "currency"}
	case focusDataset:
		return [2]string{"BilledCost", "BillingCurrency"}
	}
	return [2]string{} // a statement repeats its total
}

// verifyFile fetches a file to a temporary place, since Parquet is read from
// its end.
func verifyFile(ctx context.Context, b bucket.Bucket, folder string, m *Manifest, f File, totals map[string]*wide) error {
	in, err := b.Open(ctx, folder+f.Path)
	if err != nil {
		return err
	}
	defer in.Close()
	local, err := os.CreateTemp("", "ratebatch-verify-")
	if err != nil {
		return err
	}
	defer os.Remove(local.Name())
	defer local.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(local, sum), in)
	if err != nil {
		return err
	}
	if uint64(n) != f.Bytes {
		return fmt.Errorf("%d bytes, the manifest says %d", n, f.Bytes)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.SHA256 {
		return fmt.Errorf("sha256 %s, the manifest says %s", got, f.SHA256)
	}
	if !strings.HasSuffix(f.Path, "."+Parquet) {
		return nil
	}
	reader, err := file.NewParquetReader(local)
	if err != nil {
		return err
	}
	defer reader.Close()
	if uint64(reader.NumRows()) != f.Rows {
		return fmt.Errorf("%d rows, the manifest says %d", reader.NumRows(), f.Rows)
	}
	s := reader.MetaData().Schema
	if s.NumColumns() != len(m.Schema.Fields) {
		return fmt.Errorf("%d columns, the manifest says %d", s.NumColumns(), len(m.Schema.Fields))
	}
	for i, field := range m.Schema.Fields {
		if s.Column(i).Name() != field.Name {
			return fmt.Errorf("column %d is %s, the manifest says %s", i, s.Column(i).Name(), field.Name)
		}
	}
	if names := moneyColumns(m.Dataset); names[0] != "" {
		return sumMoney(reader, s.ColumnIndexByName(names[0]), s.ColumnIndexByName(names[1]), totals)
	}
	return nil
}

// sumMoney adds a file's money to totals, exactly.
func sumMoney(reader *file.Reader, moneyColumn, currencyColumn int, totals map[string]*wide) error {
	if moneyColumn < 0 || currencyColumn < 0 {
		return errors.New("the columns of money and currency are missing")
	}
	const batch = 1 << 13
	money, currencies := make([]parquet.FixedLenByteArray, batch), make([]parquet.ByteArray, batch)
	for g := range reader.NumRowGroups() {
		group := reader.RowGroup(g)
		m, err := group.Column(moneyColumn)
		if err != nil {
			return err
		}
		c, err := group.Column(currencyColumn)
		if err != nil {
			return err
		}
		moneyReader, ok := m.(*file.FixedLenByteArrayColumnChunkReader)
		currencyReader, ok2 := c.(*file.ByteArrayColumnChunkReader)
		if !ok || !ok2 {
			return errors.New("money is no DECIMAL in FIXED_LEN_BYTE_ARRAY, or currency no text")
		}
		for rest := group.NumRows(); rest > 0; {
			want := min(rest, batch)
			if err := readFull(want, func(at int64) (int64, error) {
				n, _, err := moneyReader.ReadBatch(want-at, money[at:want], nil, nil)
				return n, err
			}); err != nil {
				return err
			}
			if err := readFull(want, func(at int64) (int64, error) {
				n, _, err := currencyReader.ReadBatch(want-at, currencies[at:want], nil, nil)
				return n, err
			}); err != nil {
				return err
			}
			for i := range want {
				total := totals[string(currencies[i])]
				if total == nil {
					total = new(wide)
					totals[string(currencies[i])] = total
				}
				total.add(wideOf(money[i]))
			}
			rest -= want
		}
	}
	return nil
}

func readFull(want int64, read func(at int64) (int64, error)) error {
	for at := int64(0); at < want; {
		n, err := read(at)
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		at += n
	}
	return nil
}
