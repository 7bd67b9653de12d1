package s3_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"go.uber.org/goleak"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/ratebatch/ratebatch/exporter/bucket"
	"github.com/ratebatch/ratebatch/exporter/bucket/buckettest"
	"github.com/ratebatch/ratebatch/exporter/bucket/s3"
	"github.com/ratebatch/ratebatch/ratebatch"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func open(tb testing.TB, endpoint, prefix string) *s3.Bucket {
	tb.Helper()
	b, err := s3.New(context.Background(), s3.Options{Bucket: "finance", Prefix: prefix, Endpoint: endpoint, PathStyle: true, Region: "us-east-1",
		MaxAttempts: 3, MaxBackoff: 20 * time.Millisecond, Timeout: 2 * time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Close)
	return b
}

func TestContract(t *testing.T) {
	server := buckettest.Start(t)
	var n atomic.Int32
	buckettest.Run(t, func(tb testing.TB) bucket.Bucket {
		return open(tb, server.Proxy, "suite/"+string('a'+n.Add(1)))
	})
}

// uploads lists unfinished multipart uploads on the server itself.
func uploads(tb testing.TB, server *buckettest.Server) []string {
	tb.Helper()
	client := awss3.New(awss3.Options{BaseEndpoint: &server.URL, UsePathStyle: true, Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("test", "testsecret", "")})
	out, err := client.ListMultipartUploads(tb.Context(), &awss3.ListMultipartUploadsInput{Bucket: aws.String("finance")})
	if err != nil {
		tb.Fatal(err)
	}
	var keys []string
	for _, u := range out.Uploads {
		keys = append(keys, aws.ToString(u.Key))
	}
	return keys
}

func TestFaultsLeaveNothingOrAllOfAnObject(t *testing.T) {
	server := buckettest.Start(t)
	const always = -1
	type want int
	const (
		succeeds want = iota
		tryAgain
		halts
	)
	for name, tt := range map[string]struct {
		fault func() buckettest.Fault
		small bool // an object of one PUT
		want  want
	}{
		"503 on create, once":                          {func() buckettest.Fault { return buckettest.Answer("create", 503, "SlowDown", 1) }, false, succeeds},
		"503 on create, always":                        {func() buckettest.Fault { return buckettest.Answer("create", 503, "SlowDown", always) }, false, tryAgain},
		"503 on part 1, once":                          {func() buckettest.Fault { return buckettest.Answer("part 1", 503, "SlowDown", 1) }, false, succeeds},
		"503 on part 2, always":                        {func() buckettest.Fault { return buckettest.Answer("part 2", 503, "SlowDown", always) }, false, tryAgain},
		"500 on complete, once":                        {func() buckettest.Fault { return buckettest.Answer("complete", 500, "InternalError", 1) }, false, succeeds},
		"503 on complete, always":                      {func() buckettest.Fault { return buckettest.Answer("complete", 503, "SlowDown", always) }, false, tryAgain},
		"an error in a 200 answer to complete, always": {func() buckettest.Fault { return buckettest.Answer("complete", 200, "InternalError", always) }, false, tryAgain},
		"503 on a small object, always":                {func() buckettest.Fault { return buckettest.Answer("put", 503, "SlowDown", always) }, true, tryAgain},
		"connection cut in part 2, once":               {func() buckettest.Fault { return buckettest.Cut("part 2", 1) }, false, succeeds},
		"connection cut in part 2, always":             {func() buckettest.Fault { return buckettest.Cut("part 2", always) }, false, tryAgain},
		"slow answer to part 1, once":                  {func() buckettest.Fault { return buckettest.Slow("part 1", 3*time.Second, 1) }, false, succeeds},
		"lost answer to a small object, once":          {func() buckettest.Fault { return buckettest.LoseAnswer("put", 1) }, true, succeeds},
		"lost answer to part 1, once":                  {func() buckettest.Fault { return buckettest.LoseAnswer("part 1", 1) }, false, succeeds},
		"lost answer to a complete that succeeded":     {func() buckettest.Fault { return buckettest.LoseAnswer("complete", 1) }, false, succeeds},
		"all answers to complete lost, it succeeded":   {func() buckettest.Fault { return buckettest.LoseAnswer("complete", always) }, false, succeeds},
		"expired credentials":                          {func() buckettest.Fault { return buckettest.Answer("", 403, "ExpiredToken", always) }, true, halts},
		"a bucket that denies writes":                  {func() buckettest.Fault { return buckettest.Answer("put", 403, "AccessDenied", always) }, true, halts},
		"a bucket that denies large writes":            {func() buckettest.Fault { return buckettest.Answer("create", 403, "AccessDenied", always) }, false, halts},
	} {
		t.Run(name, func(t *testing.T) {
			server.SetFault(tt.fault())
			defer server.SetFault(nil)
			b := open(t, server.Proxy, "faults/"+strings.ReplaceAll(t.Name(), "/", "_"))
			content := buckettest.Bytes(buckettest.Large, 7)
			if tt.small {
				content = content[:1000]
			}
			err := buckettest.Put(t.Context(), b, "object", content)
			switch code := ratebatch.ExitCode(err); {
			case tt.want == succeeds && err != nil:
				t.Errorf("put: %v", err)
			case tt.want == tryAgain && code != ratebatch.ExitTryAgain:
				t.Errorf("exit code %d of %v", code, err)
			case tt.want == halts && code != ratebatch.ExitHalted:
				t.Errorf("exit code %d of %v", code, err)
			}
			server.SetFault(nil)
			got, err := buckettest.Get(t.Context(), b, "object")
			if !errors.Is(err, bucket.ErrNotExist) && (err != nil || !bytes.Equal(got, content)) {
				t.Errorf("under the final name are %d bytes of %d (%v)", len(got), len(content), err)
			}
			if left := uploads(t, server); len(left) > 0 {
				t.Errorf("orphan uploads: %q", left)
			}
			if err := buckettest.Put(t.Context(), b, "object", content); err != nil {
				t.Errorf("the rerun: %v", err)
			}
			if got, err := buckettest.Get(t.Context(), b, "object"); err != nil || !bytes.Equal(got, content) {
				t.Errorf("after the rerun %d bytes came back (%v)", len(got), err)
			}
		})
	}
}

func TestRequestsHaveNothingThatOldStoresReject(t *testing.T) {
	server := buckettest.Start(t)
	server.SetFault(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		for name := range r.Header {
			lower := strings.ToLower(name)
			if strings.HasPrefix(lower, "x-amz-checksum") || lower == "x-amz-sdk-checksum-algorithm" || lower == "x-amz-trailer" {
				t.Errorf("%s has header %s", buckettest.Operation(r), name)
			}
		}
		if sum := r.Header.Get("X-Amz-Content-Sha256"); strings.HasPrefix(sum, "STREAMING") || r.Header.Get("Content-Encoding") == "aws-chunked" {
			t.Errorf("%s is chunked: %s", buckettest.Operation(r), sum)
		}
		if op := buckettest.Operation(r); (op == "put" || strings.HasPrefix(op, "part")) && r.Header.Get("Content-Md5") == "" {
			t.Errorf("%s has no Content-MD5", op)
		}
		return false
	})
	b := open(t, server.Proxy, "plain")
	for _, size := range []int{100, buckettest.Large} {
		content := buckettest.Bytes(size, 3)
		if err := buckettest.Put(t.Context(), b, "object", content); err != nil {
			t.Fatal(err)
		}
		if got, err := buckettest.Get(t.Context(), b, "object"); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes came back (%v)", len(got), err)
		}
	}
}

func TestCleanAbortsUploadsOfKilledExports(t *testing.T) {
	server := buckettest.Start(t)
	b := open(t, server.URL, "killed")
	w, err := b.Create(t.Context(), "object")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(buckettest.Bytes(buckettest.Large, 1)); err != nil { // and the process dies
		t.Fatal(err)
	}
	if err := b.Clean(t.Context(), "", time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if left := uploads(t, server); len(left) != 1 {
		t.Errorf("a young upload was aborted: %q", left)
	}
	if err := b.Clean(t.Context(), "", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if left := uploads(t, server); len(left) != 0 {
		t.Errorf("orphan uploads: %q", left)
	}
}

func TestParse(t *testing.T) {
	o, err := s3.Parse("s3://finance/rated/2026?endpoint=http://minio:9000&storage-class=STANDARD_IA&sse=AES256")
	if err != nil || o.Bucket != "finance" || o.Prefix != "rated/2026" || o.Endpoint != "http://minio:9000" || !o.PathStyle || o.StorageClass != "STANDARD_IA" || o.SSE != "AES256" {
		t.Errorf("parsed %+v (%v)", o, err)
	}
	for name, location := range map[string]string{
		"an unknown key": "s3://b?region=x&colour=red", "no bucket": "s3:///x", "credentials": "s3://key:secret@b/x", "credentials for the endpoint": "s3://b?endpoint=https://key:secret@minio:9000", "a bad endpoint": "s3://b?endpoint=minio:9000",
		"a bad flag": "s3://b?path-style=maybe", "another scheme": "gs://b",
	} {
		_, err := s3.Parse(location)
		if err == nil {
			t.Errorf("%s was accepted", name)
		} else if strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: the error shows the secret: %v", name, err)
		}
	}
}

func TestLocationHasNoSecrets(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "verysecret")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	b := open(t, "http://127.0.0.1:1", "p")
	err := buckettest.Put(t.Context(), b, "object", []byte("x"))
	if ratebatch.ExitCode(err) != ratebatch.ExitTryAgain {
		t.Errorf("a store that is away: %v", err)
	}
	if text := b.Location() + err.Error(); strings.Contains(text, "verysecret") || strings.Contains(text, "AKIDTEST") {
		t.Errorf("secrets show: %s", text)
	}
}
