package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate makes one that signs itself, for 127.0.0.1, as two PEM files.
func certificate(t *testing.T) (certificateFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	roots = x509.NewCertPool()
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(signed)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", keyDER), roots
}

// billed projects of November as this server shows them to whoever asks so.
func (s *served) billed(t *testing.T, header ...string) string {
	t.Helper()
	status, _, text := s.ask(t, http.MethodGet, "/api/v1/costs?month=2026-11&group=project&compare=none", "", header...)
	if status != http.StatusOK {
		return http.StatusText(status)
	}
	var costs struct {
		Rows []struct{ Project, Price string }
	}
	if err := json.Unmarshal(text, &costs); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range costs.Rows {
		names = append(names, row.Project)
	}
	return strings.Join(names, " ")
}

// As docs/dashboard.md and docs/api.md start it for others than this machine:
// TLS, and tokens.
func TestServeOverTLSWithTokens(t *testing.T) {
	flags, _ := sharedDatabase(t)
	must(t, append(append(flags, "rate"), now...)...)
	cert, key, roots := certificate(t)
	file, tokens := tokensFile(t, "", "project-1")
	all, own := tokens[""], tokens["project-1"]
	s := startServeAt(t, clockOf(t, now[1]), append(flags, "--tokens", file, "--tls-certificate", cert, "--tls-key", key, "--cloudkitty-api", "--cloudkitty-listen", "127.0.0.1:0")...)
	s.roots = roots
	plain := *s
	for _, address := range []*string{&s.url, &s.kitty} {
		if !strings.HasPrefix(*address, "https://") {
			t.Fatalf("serve says it is at %s", *address)
		}
	}
	for token, want := range map[string]string{all: "project-0 project-1", own: "project-1", "": "Unauthorized", "x" + all: "Unauthorized"} {
		s.token = token
		if got := s.billed(t); got != want {
			t.Errorf("with token %.4q: %s, want %s", token, got, want)
		}
	}
	s.token = all
	if _, header, _ := s.ask(t, http.MethodGet, "/api/v1/session", ""); header.Get("Strict-Transport-Security") == "" {
		t.Errorf("browsers are not told to stay with TLS: %v", header)
	}
	kitty := *s
	kitty.url = s.kitty
	if status, _, text := kitty.ask(t, http.MethodGet, "/v1/rating/modules", "", "X-Auth-Token", all); status != http.StatusOK {
		t.Errorf("CloudKitty's API over TLS: %d %s", status, text)
	}

	// The same without TLS gets nothing, with the right token too.
	for _, address := range []string{s.url, s.kitty} {
		plain.url, plain.token = strings.Replace(address, "https://", "http://", 1), all
		if status, _, text := plain.ask(t, http.MethodGet, "/api/v1/costs?month=2026-11", ""); status != http.StatusBadRequest || strings.Contains(string(text), "project") {
			t.Errorf("%s: %d %s, want 400", plain.url, status, text)
		}
	}
	// Nor do clients who know another certificate, or an old TLS.
	_, _, others := certificate(t)
	for name, config := range map[string]*tls.Config{"another certificate": {RootCAs: others}, "TLS 1.1": {RootCAs: roots, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}} {
		dialer := &tls.Dialer{Config: config}
		if c, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "https://")); err == nil {
			c.Close()
			t.Errorf("%s: it is spoken", name)
		}
	}
	for protocol, enabled := range map[string]func(*http.Protocols){"HTTP/1.1": func(p *http.Protocols) { p.SetHTTP1(true) }, "HTTP/2.0": func(p *http.Protocols) { p.SetHTTP2(true) }} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, Protocols: &http.Protocols{}}
		enabled(transport.Protocols)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/api/v1/health", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatalf("%s: %v", protocol, err)
		}
		response.Body.Close()
		transport.CloseIdleConnections()
		if response.Proto != protocol || response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", protocol, response.Proto, response.Status)
		}
	}
}

// A certificate that cannot be read is an error before anything is answered.
func TestServeWithABrokenCertificate(t *testing.T) {
	flags, _ := sharedDatabase(t)
	cert, _, _ := certificate(t)
	_, key, _ := certificate(t)
	for name, pair := range map[string][2]string{"another's key": {cert, key}, "no file": {cert + "x", key}, "the key twice": {key, key}} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := cli(t, append(flags, "serve", "--listen", "127.0.0.1:0", "--tls-certificate", pair[0], "--tls-key", pair[1])...)
			if code != 2 || !strings.Contains(stderr, "certificate") || strings.Contains(stderr, "serving") {
				t.Errorf("exit %d: %s", code, stderr)
			}
		})
	}
}

// Behind a proxy that knows the users by their password and their projects, as
// docs/dashboard.md sets it up.
func TestServeBehindATrustedProxy(t *testing.T) {
	flags, _ := sharedDatabase(t)
	must(t, append(append(flags, "rate"), now...)...)
	s := startServeAt(t, clockOf(t, now[1]), append(flags, "--trusted-proxy", "127.0.0.1", "--proxy-header", "X-Remote-User", "--proxy-project-header", "X-Project")...)
	target, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	projects := map[string]string{"ann": "*", "bob": "project-1", "eve": "", "max": "project-0, project-1"}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = "billing.example.com" // the proxy answers to a name of its own
		user, _, _ := r.In.BasicAuth()
		r.Out.Header.Set("X-Remote-User", user) // replaces what a client sent
		r.Out.Header.Set("X-Project", projects[user])
	}})
	defer proxy.Close()
	through := &served{url: proxy.URL}
	for name, tt := range map[string]struct {
		user, want string
		header     []string
	}{
		"all projects":             {"ann", "project-0 project-1", nil},
		"one project":              {"bob", "project-1", nil},
		"one that asks for all":    {"bob", "project-1", []string{"X-Project", "*", "X-Remote-User", "ann"}},
		"a user of no project":     {"eve", "Unauthorized", nil},
		"several are none":         {"max", "", nil},
		"nobody":                   {"", "Unauthorized", nil},
		"nobody, called otherwise": {"", "Unauthorized", []string{"X-Remote-User", "ann", "X-Project", "*"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.SetBasicAuth(tt.user, "secret")
			if got := through.billed(t, append(tt.header, "Authorization", r.Header.Get("Authorization"))...); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
	if got := s.billed(t); got != "Unauthorized" {
		t.Errorf("a request of the proxy's machine that names nobody: %s", got)
	}

	// The command of the document: this machine is not that proxy.
	elsewhere := startServeAt(t, clockOf(t, now[1]), append(flags, "--trusted-proxy", "10.0.0.2", "--proxy-header", "X-Remote-User")...)
	for _, forwarded := range []string{"", "10.0.0.2"} {
		if got := elsewhere.billed(t, "X-Remote-User", "ann", "X-Forwarded-For", forwarded, "X-Real-IP", forwarded); got != "Unauthorized" {
			t.Errorf("a header of another address (forwarded for %q): %s", forwarded, got)
		}
	}
	if log := elsewhere.log.String(); !strings.Contains(log, "authentication=true") {
		t.Errorf("serve says %s", log)
	}
}
