package engine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

const urlForms = "use clickhouse://user@host:9000/db, clickhouse://…?secure=true, http://host:8123 or https://host:8443"

// serverOptions turns a URL into the client's options. It reports the URL
// without its password.
func serverOptions(o Options) (*clickhouse.Options, string, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		// The error of url.Parse repeats the text, and with it the password.
		return nil, "", &ratebatch.ConfigError{Err: errors.New("the ClickHouse URL cannot be read"), Hint: urlForms}
	}
	ports := map[string]string{"clickhouse": "9000", "tcp": "9000", "http": "8123", "https": "8443"}
	port, known := ports[u.Scheme]
	if u.Host == "" {
		// Without // what stands before the colon reads as a scheme, and what
		// follows may be a password.
		return nil, "", &ratebatch.ConfigError{Err: errors.New("the ClickHouse URL names no host, or has no scheme://"), Hint: urlForms}
	}
	shown := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	if !known {
		return nil, "", &ratebatch.ConfigError{Err: fmt.Errorf("the ClickHouse URL %s", shown), Hint: urlForms}
	}
	q := u.Query()
	if u.Scheme == "https" {
		q.Set("secure", "true")
	}
	if q.Get("secure") == "true" && port == "9000" {
		port = "9440"
	}
	hosts := strings.Split(u.Host, ",")
	for i, h := range hosts {
		if _, _, err := net.SplitHostPort(h); err != nil {
			hosts[i] = net.JoinHostPort(strings.Trim(h, "[]"), port)
		}
	}
	u.Host = strings.Join(hosts, ",")
	files := map[string]string{}
	for _, name := range []string{"tls_ca", "tls_cert", "tls_key"} {
		files[name] = q.Get(name)
		q.Del(name)
	}
	u.RawQuery = q.Encode()
	c, err := clickhouse.ParseDSN(u.String())
	if err != nil {
		return nil, "", &ratebatch.ConfigError{Err: fmt.Errorf("the ClickHouse URL %s: %w", shown, err), Hint: urlForms}
	}
	if err := tlsFiles(c, files); err != nil {
		return nil, "", err
	}
	if c.Auth.Database == "" || u.Path == "" || u.Path == "/" {
		c.Auth.Database = o.Database
	}
	if c.Auth.Username == "" {
		c.Auth.Username = "default"
	}
	switch {
	case o.PasswordFile != "":
		text, err := os.ReadFile(o.PasswordFile)
		if err != nil {
			return nil, "", &ratebatch.ConfigError{Err: fmt.Errorf("the ClickHouse password: %w", err)}
		}
		c.Auth.Password = strings.TrimRight(string(text), "\r\n")
	case c.Auth.Password == "":
		c.Auth.Password = os.Getenv(EnvPassword)
	}
	return c, "ClickHouse at " + (&url.URL{Scheme: u.Scheme, Host: u.Host}).String(), nil
}

func tlsFiles(c *clickhouse.Options, files map[string]string) error {
	fail := func(err error) error {
		return &ratebatch.ConfigError{Err: fmt.Errorf("TLS for ClickHouse: %w", err), Hint: "tls_ca, tls_cert and tls_key in the URL name PEM files"}
	}
	if files["tls_ca"] == "" && files["tls_cert"] == "" {
		return nil
	}
	if c.TLS == nil {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if path := files["tls_ca"]; path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return fail(err)
		}
		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return fail(fmt.Errorf("%s holds no certificate", path))
		}
	}
	if path := files["tls_cert"]; path != "" {
		pair, err := tls.LoadX509KeyPair(path, files["tls_key"])
		if err != nil {
			return fail(err)
		}
		c.TLS.Certificates = []tls.Certificate{pair}
	}
	return nil
}

func openServer(ctx context.Context, o Options) (*Engine, error) {
	c, address, err := serverOptions(o)
	if err != nil {
		return nil, err
	}
	common(o, c)
	if c.Compression == nil {
		c.Compression = &clickhouse.Compression{Method: clickhouse.CompressionLZ4}
	}
	e := &Engine{options: c, address: address}
	if err := e.connect(ctx, o); err != nil {
		return nil, err
	}
	return e, nil
}

// connect opens the pool, creates the database if asked to, and checks that
// ClickHouse answers.
func (e *Engine) connect(ctx context.Context, o Options) error {
	if o.Create && e.options.Auth.Database != "" {
		bare := *e.options
		bare.Auth.Database = ""
		conn, err := clickhouse.Open(&bare)
		if err != nil {
			return &ratebatch.ConfigError{Err: fmt.Errorf("%s: %w", e.address, err)}
		}
		err = conn.Exec(ctx, "CREATE DATABASE IF NOT EXISTS "+sqltext.Name(e.options.Auth.Database))
		err = errors.Join(err, conn.Close())
		if err != nil {
			return e.explain(fmt.Errorf("create database %s: %w", e.options.Auth.Database, err))
		}
	}
	conn, err := clickhouse.Open(e.options)
	if err != nil {
		return &ratebatch.ConfigError{Err: fmt.Errorf("%s: %w", e.address, err)}
	}
	version, err := conn.ServerVersion()
	if err == nil {
		err = conn.Ping(ctx)
	}
	if err != nil {
		_ = conn.Close() // nothing was sent on it
		return e.explain(err)
	}
	e.version = fmt.Sprintf("%d.%d.%d", version.Version.Major, version.Version.Minor, version.Version.Patch)
	var full string
	if err := conn.QueryRow(ctx, "SELECT version()").Scan(&full); err == nil {
		e.version = full
	}
	e.conn = &watchedConn{Conn: conn, engine: e}
	return nil
}

// explain sorts an error of connecting by what a person can do about it.
func (e *Engine) explain(err error) error {
	cause := err
	var request *url.Error
	if errors.As(err, &request) {
		cause = request.Err // its URL is a screenful of settings
	}
	wrapped := fmt.Errorf("%s: %w", e.address, cause)
	var exception *clickhouse.Exception
	if errors.As(err, &exception) {
		switch exception.Code {
		case 516, 192, 193, 194, 497:
			return &ratebatch.ConfigError{Err: wrapped, Hint: "check user and password (" + EnvPassword + " or the URL) and the user's grants"}
		case 81:
			return &ratebatch.ConfigError{Err: fmt.Errorf("%s has no database %s", e.address, e.options.Auth.Database), Hint: "run 'ratebatch migrate' first, or correct --database"}
		}
		return wrapped
	}
	var dns *net.DNSError
	var unknownCA x509.UnknownAuthorityError
	var host x509.HostnameError
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &unknownCA), errors.As(err, &host):
		return &ratebatch.ConfigError{Err: wrapped, Hint: "name the authority's certificate with tls_ca=… in the URL"}
	case errors.As(err, &header):
		return &ratebatch.ConfigError{Err: wrapped, Hint: "that port speaks no TLS; " + urlForms}
	case errors.As(err, &dns) && dns.IsNotFound:
		return &ratebatch.ConfigError{Err: wrapped, Hint: "check the host in --clickhouse"}
	case errors.Is(err, context.Canceled):
		return wrapped
	}
	if missing := codeOf(err); missing == 81 {
		return &ratebatch.ConfigError{Err: fmt.Errorf("%s has no database %s", e.address, e.options.Auth.Database), Hint: "run 'ratebatch migrate' first, or correct --database"}
	} else if missing == 516 {
		return &ratebatch.ConfigError{Err: wrapped, Hint: "check user and password (" + EnvPassword + " or the URL)"}
	} else if missing != 0 {
		return wrapped
	}
	if strings.Contains(err.Error(), "malformed HTTP") || strings.Contains(err.Error(), "unexpected packet") {
		return &ratebatch.ConfigError{Err: wrapped, Hint: "that port speaks another protocol; " + urlForms}
	}
	return &ratebatch.TryAgainError{Err: wrapped, Hint: "check that it runs and that --clickhouse names its host and port"}
}

// codeOf finds ClickHouse's error code in the text of an error, because the
// client wraps what comes over HTTP into plain text in places.
func codeOf(err error) int {
	_, after, found := strings.Cut(err.Error(), "Code: ")
	if !found {
		_, after, found = strings.Cut(err.Error(), "code: ")
	}
	code := 0
	if found {
		_, _ = fmt.Sscanf(after, "%d", &code) // stays 0 if there is none
	}
	return code
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
