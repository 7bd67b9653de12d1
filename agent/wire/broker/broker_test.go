package broker_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/agent/wire/broker"
	"github.com/ratebatch/ratebatch/fixtures/devkafka"
)

// write makes a file of the test's own.
func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// certificate makes one that signs itself, for 127.0.0.1, as two PEM files.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		write(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})))
}

func start(t *testing.T, o devkafka.Options) string {
	t.Helper()
	b, err := devkafka.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b.Address()
}

// ping connects once with these options.
func ping(t *testing.T, o broker.Options) error {
	t.Helper()
	client, err := o.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	return o.Ping(t.Context(), client, 5*time.Second)
}

func TestMistakesAreAllReported(t *testing.T) {
	cert, key := certificate(t)
	for name, tt := range map[string]struct {
		options broker.Options
		want    []string
	}{
		"nothing":                     {broker.Options{}, []string{"no broker is named"}},
		"a URL":                       {broker.Options{Brokers: []string{"kafka://a:9092"}}, []string{"without a scheme"}},
		"an empty address":            {broker.Options{Brokers: []string{"a:9092", ""}}, []string{`broker ""`}},
		"two colons":                  {broker.Options{Brokers: []string{"a:b:1"}}, []string{`broker "a:b:1"`}},
		"an unknown mechanism":        {broker.Options{Brokers: []string{"a"}, Mechanism: "GSSAPI", User: "u"}, []string{`"GSSAPI" is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512`}},
		"a mechanism without a user":  {broker.Options{Brokers: []string{"a"}, Mechanism: "PLAIN", Password: "p"}, []string{"PLAIN without a user"}},
		"a user without a password":   {broker.Options{Brokers: []string{"a"}, User: "u"}, []string{"user u without a password"}},
		"a password without a user":   {broker.Options{Brokers: []string{"a"}, Password: "hunter2"}, []string{"a password without a user"}},
		"two passwords":               {broker.Options{Brokers: []string{"a"}, User: "u", Password: "hunter2", PasswordFile: write(t, "p", "x")}, []string{"two passwords"}},
		"a missing password file":     {broker.Options{Brokers: []string{"a"}, User: "u", PasswordFile: "/nowhere"}, []string{"password file", "/nowhere"}},
		"an empty password file":      {broker.Options{Brokers: []string{"a"}, User: "u", PasswordFile: write(t, "p", "\n")}, []string{"has to hold one line"}},
		"two lines of password":       {broker.Options{Brokers: []string{"a"}, User: "u", PasswordFile: write(t, "p", "a\nb\n")}, []string{"has to hold one line"}},
		"a certificate without a key": {broker.Options{Brokers: []string{"a"}, CertFile: cert}, []string{"go together"}},
		"a CA that is none":           {broker.Options{Brokers: []string{"a"}, CAFile: key}, []string{"holds no PEM certificate"}},
		"several at once":             {broker.Options{Brokers: []string{"", "b://c"}, CAFile: "/nowhere", Mechanism: "X"}, []string{`broker ""`, "b://c", "/nowhere", `"X"`}},
	} {
		err := tt.options.Validate()
		if err == nil {
			t.Errorf("%s: no problem", name)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the password is in %v", name, err)
		}
	}
	good := broker.Options{Brokers: []string{"a", "b:9093", "[::1]:9092"}, User: "u", Password: "p", CertFile: cert, KeyFile: key}
	if err := good.Validate(); err != nil {
		t.Errorf("good options: %v", err)
	}
}

func TestTLSWithBothSidesCertificates(t *testing.T) {
	cert, key := certificate(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	address := start(t, devkafka.Options{
		Users: []devkafka.User{{Mechanism: broker.ScramSHA256, Name: "u", Password: "p"}},
		TLS:   &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12},
	})
	good := broker.Options{Brokers: []string{address}, User: "u", Password: "p", CAFile: cert, CertFile: cert, KeyFile: key}
	if err := ping(t, good); err != nil {
		t.Errorf("with both certificates: %v", err)
	}
	for name, change := range map[string]func(*broker.Options){
		"without the CA":           func(o *broker.Options) { o.CAFile = "" },
		"without our certificate":  func(o *broker.Options) { o.CertFile, o.KeyFile = "", "" },
		"without TLS":              func(o *broker.Options) { o.CAFile, o.CertFile, o.KeyFile = "", "", "" },
		"with TLS, another's name": func(o *broker.Options) { o.Brokers = []string{strings.Replace(address, "127.0.0.1", "localhost", 1)} },
	} {
		o := good
		change(&o)
		if err := ping(t, o); err == nil || !strings.Contains(err.Error(), o.Brokers[0]) {
			t.Errorf("%s: %v, want an error that names the broker", name, err)
		}
	}
}

func TestAWrongPasswordEndsInTime(t *testing.T) {
	for _, mechanism := range broker.Mechanisms() {
		address := start(t, devkafka.Options{Users: []devkafka.User{{Mechanism: mechanism, Name: "u", Password: "right"}}})
		o := broker.Options{Brokers: []string{address}, Mechanism: mechanism, User: "u", Password: "hunter2"}
		began := time.Now()
		err := ping(t, o)
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "as user u by "+mechanism) || time.Since(began) > 10*time.Second {
			t.Errorf("%s: after %s: %v", mechanism, time.Since(began), err)
		}
	}
}

func TestThePasswordFileIsReadAtEveryLogin(t *testing.T) {
	address := start(t, devkafka.Options{Users: []devkafka.User{{Mechanism: broker.ScramSHA512, Name: "u", Password: "right"}}})
	file := write(t, "password", "wrong\n")
	o := broker.Options{Brokers: []string{address}, Mechanism: "scram-sha-512", User: "u", PasswordFile: file}
	client, err := o.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := o.Ping(t.Context(), client, 2*time.Second); err == nil {
		t.Fatal("the wrong password was taken")
	}
	if err := os.WriteFile(file, []byte("right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := o.Ping(t.Context(), client, 5*time.Second); err != nil {
		t.Errorf("after the file was mended: %v", err)
	}
}

func TestNobodyAtTheAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	if err := ping(t, broker.Options{Brokers: []string{address}}); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("%v, want an error that names %s", err, address)
	}
}
