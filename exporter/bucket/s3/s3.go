// Package s3 keeps a bucket's objects in an S3-compatible store: AWS, Ceph RGW,
// MinIO, versitygw. Small objects are one PUT; larger ones are multipart
// uploads that are completed or aborted. Requests use only what old stores
// understand: Content-MD5, no trailing checksums, no x-amz-checksum headers.
package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/ratebatch/ratebatch/exporter/bucket"
	"github.com/ratebatch/ratebatch/ratebatch"
)

// Options say where the store is. Credentials come from the usual chain:
// environment, shared files, web identity, instance role.
type Options struct {
	Bucket, Prefix string // Prefix without slashes at its ends
	Endpoint       string // empty: AWS
	Region         string // empty: from the environment, with an endpoint us-east-1
	PathStyle      bool   // bucket in the path; most stores other than AWS want it
	SSE            string // AES256 or aws:kms; empty: the bucket's own setting
	KMSKeyID       string
	StorageClass   string // empty: the bucket's own setting

	PartSize    int           // bytes; 0: 8 MiB
	MaxAttempts int           // of a request; 0: 5
	MaxBackoff  time.Duration // between attempts; 0: 20 s
	Timeout     time.Duration // until the answer to a request begins; 0: 1 min
}

const (
	minPart     = 5 << 20 // S3's own bound, but for the last part
	defaultPart = 8 << 20
	maxParts    = 10_000
	abortWithin = 30 * time.Second
)

// Parse reads s3://bucket/prefix?endpoint=…&region=…&path-style=true&sse=…
// &kms-key=…&storage-class=…. Credentials do not belong in a location.
func Parse(location string) (Options, error) {
	u, err := url.Parse(location)
	if err != nil {
		return Options{}, errors.New("not a location like s3://bucket/prefix") // the cause repeats the text, which may hold a secret
	}
	if u.Scheme != "s3" || u.Host == "" {
		return Options{}, errors.New("not a location like s3://bucket/prefix")
	}
	if u.User != nil {
		return Options{}, errCredentials
	}
	o := Options{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}
	var problems []error
	given := false
	for key, values := range u.Query() {
		value := values[len(values)-1]
		switch key {
		case "endpoint":
			switch e, err := url.Parse(value); {
			case err != nil || e.Host == "" || (e.Scheme != "http" && e.Scheme != "https"):
				problems = append(problems, errors.New("endpoint must be an http or https URL"))
			case e.User != nil:
				problems = append(problems, errCredentials)
			}
			o.Endpoint = value
		case "region":
			o.Region = value
		case "path-style":
			given = true
			if o.PathStyle, err = strconv.ParseBool(value); err != nil {
				problems = append(problems, fmt.Errorf("path-style=%q: use true or false", value))
			}
		case "sse":
			o.SSE = value
		case "kms-key":
			o.KMSKeyID = value
		case "storage-class":
			o.StorageClass = value
		default:
			problems = append(problems, fmt.Errorf("unknown key %q; there are endpoint, region, path-style, sse, kms-key, storage-class", key))
		}
	}
	if o.Endpoint != "" && !given {
		o.PathStyle = true
	}
	return o, errors.Join(problems...)
}

var errCredentials = errors.New("credentials do not belong in the location: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile")

// Bucket is a prefix of a bucket in a store.
type Bucket struct {
	o         Options
	client    *s3.Client
	transport atomic.Pointer[http.Transport] // the one the SDK's client made
}

// New connects; nothing is sent yet.
func New(ctx context.Context, o Options) (*Bucket, error) {
	if o.PartSize == 0 {
		o.PartSize = defaultPart
	}
	o.PartSize = max(o.PartSize, minPart)
	if o.MaxAttempts == 0 {
		o.MaxAttempts = 5
	}
	if o.MaxBackoff == 0 {
		o.MaxBackoff = 20 * time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	b := &Bucket{o: o}
	// The SDK's own client, since it knows AWS_CA_BUNDLE.
	client := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.ResponseHeaderTimeout = o.Timeout
		t.MaxIdleConnsPerHost = 16
		b.transport.Store(t)
	})
	load := []func(*config.LoadOptions) error{
		config.WithHTTPClient(client),
		config.WithRequestChecksumCalculation(aws.RequestChecksumCalculationWhenRequired),
		config.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired),
		config.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(s *retry.StandardOptions) {
				s.MaxAttempts, s.MaxBackoff = o.MaxAttempts, o.MaxBackoff
				s.RateLimiter = unlimited{}
				s.Retryables = append(s.Retryables, retry.IsErrorRetryableFunc(cutConnection))
			})
		}),
	}
	if o.Region != "" {
		load = append(load, config.WithRegion(o.Region))
	}
	c, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("s3 configuration: %w", err)}
	}
	b.client = s3.NewFromConfig(c, func(s *s3.Options) {
		s.UsePathStyle = o.PathStyle
		if o.Endpoint != "" {
			s.BaseEndpoint = &o.Endpoint
		}
		if s.Region == "" {
			s.Region = "us-east-1"
		}
		s.DisableLogOutputChecksumValidationSkipped = true
	})
	return b, nil
}

// unlimited takes the place of the SDK's token bucket: attempts bound retries
// here, and one slow file must not use up the retries of the others.
type unlimited struct{}

func (unlimited) GetToken(context.Context, uint) (func() error, error) {
	return func() error { return nil }, nil
}

func (unlimited) AddTokens(uint) error { return nil }

// cutConnection says that the other side went away in the middle.
func cutConnection(err error) aws.Ternary {
	var network net.Error
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.As(err, &network) {
		return aws.TrueTernary
	}
	return aws.UnknownTernary
}

// Close ends idle connections.
func (b *Bucket) Close() {
	if t := b.transport.Load(); t != nil {
		t.CloseIdleConnections()
	}
}

// Location implements bucket.Bucket. It is what deliveries are on record under,
// so it cannot take in the endpoint any more: places would begin anew.
func (b *Bucket) Location() string {
	return strings.TrimSuffix("s3://"+b.o.Bucket+"/"+b.o.Prefix, "/")
}

func (b *Bucket) key(name string) string {
	if b.o.Prefix == "" {
		return name
	}
	return b.o.Prefix + "/" + name
}

// class gives an error its class and the next step.
func (b *Bucket) class(what string, err error) error {
	if err == nil {
		return nil
	}
	var no *types.NoSuchKey
	var notFound *types.NotFound
	if errors.As(err, &no) || errors.As(err, &notFound) {
		return fmt.Errorf("%s: %w", what, bucket.ErrNotExist)
	}
	wrapped := fmt.Errorf("%s %s: %w", b.Location(), what, err)
	var api smithy.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode() {
		case "NoSuchKey", "NotFound":
			return fmt.Errorf("%s: %w", what, bucket.ErrNotExist)
		case "AccessDenied", "Forbidden", "AllAccessDisabled":
			return &ratebatch.HaltError{Err: wrapped, Hint: "the credentials may not do this: allow s3:PutObject, GetObject, ListBucket, DeleteObject and AbortMultipartUpload there"}
		case "ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken":
			return &ratebatch.HaltError{Err: wrapped, Hint: "renew the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN or the profile) and run the same command again"}
		case "NoSuchBucket", "PermanentRedirect", "AuthorizationHeaderMalformed", "InvalidBucketName":
			return &ratebatch.ConfigError{Err: wrapped, Hint: "check bucket, region and endpoint"}
		}
	}
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) && answer.HTTPStatusCode() == http.StatusForbidden {
		return &ratebatch.HaltError{Err: wrapped, Hint: "the credentials may not do this"}
	}
	if errors.Is(err, context.Canceled) {
		return wrapped
	}
	if errors.As(err, &api) && answer != nil && answer.HTTPStatusCode() < 500 && answer.HTTPStatusCode() != http.StatusTooManyRequests {
		return wrapped
	}
	return &ratebatch.TryAgainError{Err: wrapped, Hint: "nothing was published, run the same command again"}
}

// Create implements bucket.Bucket. A writer holds one part in memory.
func (b *Bucket) Create(ctx context.Context, name string) (bucket.Writer, error) {
	return &writer{b: b, ctx: ctx, name: name, sum: md5.New()}, nil
}

type writer struct {
	b      *Bucket
	ctx    context.Context // a writer lives within one call of its maker
	name   string
	buffer []byte
	size   int64
	upload *string // nil: nothing was sent yet
	parts  []types.CompletedPart
	sum    interface{ Sum([]byte) []byte }
	sums   []byte // MD5 of every part
	err    error
	done   bool
}

func (w *writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	written := 0
	for len(p) > 0 {
		if len(w.buffer) == w.b.o.PartSize {
			if w.err = w.sendPart(); w.err != nil {
				return written, w.err
			}
		}
		n := min(len(p), w.b.o.PartSize-len(w.buffer))
		if need := len(w.buffer) + n; need > cap(w.buffer) {
			grown := make([]byte, len(w.buffer), min(w.b.o.PartSize, max(need, 2*cap(w.buffer), 64<<10)))
			copy(grown, w.buffer)
			w.buffer = grown
		}
		w.buffer = append(w.buffer, p[:n]...)
		p = p[n:]
		written += n
		w.size += int64(n)
	}
	return written, nil
}

func contentMD5(body []byte) (sum [md5.Size]byte, header *string) {
	sum = md5.Sum(body)
	return sum, aws.String(base64.StdEncoding.EncodeToString(sum[:]))
}

func (w *writer) sendPart() error {
	o := w.b.o
	if w.upload == nil {
		in := &s3.CreateMultipartUploadInput{Bucket: &o.Bucket, Key: aws.String(w.b.key(w.name)), StorageClass: types.StorageClass(o.StorageClass),
			ServerSideEncryption: types.ServerSideEncryption(o.SSE), SSEKMSKeyId: optional(o.KMSKeyID)}
		out, err := w.b.client.CreateMultipartUpload(w.ctx, in)
		if err != nil {
			return w.b.class(w.name, err)
		}
		w.upload = out.UploadId
	}
	if len(w.parts) == maxParts {
		return fmt.Errorf("%s: more than %d parts of %d bytes", w.name, maxParts, o.PartSize)
	}
	number := int32(len(w.parts) + 1)
	sum, header := contentMD5(w.buffer)
	out, err := w.b.client.UploadPart(w.ctx, &s3.UploadPartInput{Bucket: &o.Bucket, Key: aws.String(w.b.key(w.name)), UploadId: w.upload, PartNumber: &number,
		Body: bytes.NewReader(w.buffer), ContentLength: aws.Int64(int64(len(w.buffer))), ContentMD5: header})
	if err != nil {
		return w.b.class(fmt.Sprintf("%s part %d", w.name, number), err)
	}
	w.parts = append(w.parts, types.CompletedPart{ETag: out.ETag, PartNumber: &number})
	w.sums = append(w.sums, sum[:]...)
	w.buffer = w.buffer[:0]
	return nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (w *writer) Commit() error {
	if w.done {
		return errors.New("commit of an ended object")
	}
	err := w.err
	if err == nil {
		err = context.Cause(w.ctx)
	}
	if err == nil {
		err = w.finish()
	}
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	w.done = true
	return nil
}

func (w *writer) finish() error {
	o := w.b.o
	if w.upload == nil {
		_, header := contentMD5(w.buffer)
		_, err := w.b.client.PutObject(w.ctx, &s3.PutObjectInput{Bucket: &o.Bucket, Key: aws.String(w.b.key(w.name)), Body: bytes.NewReader(w.buffer),
			ContentLength: aws.Int64(int64(len(w.buffer))), ContentMD5: header, StorageClass: types.StorageClass(o.StorageClass),
			ServerSideEncryption: types.ServerSideEncryption(o.SSE), SSEKMSKeyId: optional(o.KMSKeyID)})
		return w.b.class(w.name, err)
	}
	if len(w.buffer) > 0 {
		if err := w.sendPart(); err != nil {
			return err
		}
	}
	_, err := w.b.client.CompleteMultipartUpload(w.ctx, &s3.CompleteMultipartUploadInput{Bucket: &o.Bucket, Key: aws.String(w.b.key(w.name)), UploadId: w.upload,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: w.parts}})
	if err == nil {
		return w.there(nil)
	}
	// The answer may have been lost after the store completed the upload; a
	// retry then hears that there is no such upload. Look before giving up.
	if w.there(err) == nil {
		return nil
	}
	return w.b.class(w.name, err)
}

// there says whether the object is stored with the size and, where the store
// forms it the usual way, the ETag of what was written.
func (w *writer) there(cause error) error {
	out, err := w.b.client.HeadObject(w.ctx, &s3.HeadObjectInput{Bucket: &w.b.o.Bucket, Key: aws.String(w.b.key(w.name))})
	if err != nil {
		return w.b.class(w.name, err)
	}
	if got := aws.ToInt64(out.ContentLength); got != w.size {
		return fmt.Errorf("%s has %d bytes in the store, %d were written", w.name, got, w.size)
	}
	if cause != nil {
		total := md5.Sum(w.sums)
		want := fmt.Sprintf("%s-%d", hex.EncodeToString(total[:]), len(w.parts))
		if etag := strings.Trim(aws.ToString(out.ETag), `"`); etag != want {
			return fmt.Errorf("%s: another object is stored there: %w", w.name, cause)
		}
	}
	return nil
}

func (w *writer) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	if w.upload == nil {
		return nil
	}
	// The upload costs storage until it is gone, so this goes on when the
	// export was cancelled.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), abortWithin)
	defer cancel()
	return w.b.abort(ctx, w.b.key(w.name), w.upload)
}

func (b *Bucket) abort(ctx context.Context, key string, upload *string) error {
	_, err := b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.o.Bucket, Key: &key, UploadId: upload})
	var gone *types.NoSuchUpload
	var api smithy.APIError
	if errors.As(err, &gone) || errors.As(err, &api) && api.ErrorCode() == "NoSuchUpload" {
		return nil
	}
	return b.class("abort of the upload of "+key, err)
}

// Open implements bucket.Bucket.
func (b *Bucket) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.o.Bucket, Key: aws.String(b.key(name))})
	if err != nil {
		return nil, b.class(name, err)
	}
	return out.Body, nil
}

// List implements bucket.Bucket.
func (b *Bucket) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		root := b.key("")
		pages := s3.NewListObjectsV2Paginator(b.client, &s3.ListObjectsV2Input{Bucket: &b.o.Bucket, Prefix: aws.String(b.key(prefix))})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(bucket.Object{}, b.class("list "+prefix, err))
				return
			}
			for _, o := range page.Contents {
				object := bucket.Object{Name: strings.TrimPrefix(aws.ToString(o.Key), root), Size: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified).UTC()}
				if !yield(object, nil) {
					return
				}
			}
		}
	}
}

// Delete implements bucket.Bucket.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.o.Bucket, Key: aws.String(b.key(name))})
	if err = b.class(name, err); errors.Is(err, bucket.ErrNotExist) {
		return nil
	}
	return err
}

// Clean implements bucket.Cleaner: it aborts uploads that a killed process left.
func (b *Bucket) Clean(ctx context.Context, prefix string, before time.Time) error {
	in := &s3.ListMultipartUploadsInput{Bucket: &b.o.Bucket, Prefix: aws.String(b.key(prefix))}
	for {
		out, err := b.client.ListMultipartUploads(ctx, in)
		if err != nil {
			return b.class("list uploads", err)
		}
		for _, u := range out.Uploads {
			if aws.ToTime(u.Initiated).Before(before) {
				if err := b.abort(ctx, aws.ToString(u.Key), u.UploadId); err != nil {
					return err
				}
			}
		}
		if !aws.ToBool(out.IsTruncated) {
			return nil
		}
		in.KeyMarker, in.UploadIdMarker = out.NextKeyMarker, out.NextUploadIdMarker
	}
}
