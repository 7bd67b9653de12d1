package libvirt

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path"
	"strings"
)

// Sockets of a local libvirtd, the one that needs least first: read-only, of
// the monolithic daemon, then of the QEMU daemon of the modular set.
var localSockets = []string{
	"/run/libvirt/libvirt-sock-ro",
	"/run/libvirt/virtqemud-sock-ro",
	"/var/run/libvirt/libvirt-sock-ro",
	"/var/run/libvirt/virtqemud-sock-ro",
}

// target is what a URI means.
type target struct {
	driver  string // what CONNECT_OPEN is told: qemu:///system
	network string // unix or tcp
	places  []string
	host    string // of tcp and tls, without port
	tls     bool
}

func (t target) String() string {
	if t.network == "unix" {
		return "unix:" + strings.Join(t.places, " or ")
	}
	return t.places[0]
}

// parseURI understands libvirt's URIs as far as a meter needs them.
func parseURI(s string) (target, error) {
	bad := func(why string) (target, error) {
		return target{}, fmt.Errorf("libvirt URI %q: %s; use qemu:///system, qemu+unix:///system?socket=/path, qemu+tcp://host/system or qemu+tls://host/system", s, why)
	}
	u, err := url.Parse(s)
	if err != nil {
		return bad("it does not parse")
	}
	driver, transport, _ := strings.Cut(u.Scheme, "+")
	if driver != "qemu" {
		return bad("the driver is not qemu")
	}
	if u.Path != "/system" && u.Path != "/session" {
		return bad("the path is neither /system nor /session")
	}
	t := target{driver: "qemu://" + u.Path, host: u.Hostname()}
	if transport == "" {
		transport = "unix"
		if t.host != "" {
			transport = "tls"
		}
	}
	for key := range u.Query() {
		if key != "socket" || transport != "unix" {
			return bad("parameter " + key + " is not known here")
		}
	}
	if u.User != nil {
		return bad("it carries a user; give the user name and password as settings of their own")
	}
	port := u.Port()
	switch transport {
	case "unix":
		if t.host != "" {
			return bad("a unix socket has no host")
		}
		t.network, t.places, t.host = "unix", localSockets, "localhost"
		if sock := u.Query().Get("socket"); sock != "" {
			t.places = []string{sock}
		} else if u.Path == "/session" {
			return bad("/session needs ?socket=")
		}
		return t, nil
	case "tcp", "tls":
		if t.host == "" {
			return bad("the host is missing")
		}
		if port == "" {
			port = map[string]string{"tcp": "16509", "tls": "16514"}[transport]
		}
		t.network, t.tls = "tcp", transport == "tls"
		t.places = []string{net.JoinHostPort(t.host, port)}
		return t, nil
	}
	return bad("transport " + transport + " is not supported")
}

// Target names the libvirtd that a URI leads to, so that two spellings of one
// can be told. Names that only the network knows to be one machine's stay two.
func Target(uri string) (string, error) {
	t, err := parseURI(uri)
	if err != nil {
		return "", err
	}
	const local = "this machine's libvirtd"
	if t.network == "unix" {
		place := path.Clean(t.places[0])
		if strings.HasPrefix(place, "/var/run/") {
			place = strings.TrimPrefix(place, "/var") // a link to /run
		}
		for _, s := range localSockets {
			if place == s || place == strings.TrimSuffix(s, "-ro") {
				place = local
			}
		}
		return t.driver + " of " + place, nil
	}
	// TCP and TLS at their usual ports are two doors of one libvirtd.
	place := strings.ToLower(t.places[0])
	for _, port := range []string{":16509", ":16514"} {
		name, usual := strings.CutSuffix(place, port)
		if !usual {
			continue
		}
		place = name
		if ip := net.ParseIP(t.host); name == "localhost" || ip != nil && ip.IsLoopback() {
			place = local
		}
	}
	return t.driver + " of " + place, nil
}

// dial opens the raw connection, TLS included.
func (t target) dial(ctx context.Context, files TLSFiles) (net.Conn, error) {
	var c net.Conn
	var errs []error
	var d net.Dialer
	for _, place := range t.places {
		var err error
		if c, err = d.DialContext(ctx, t.network, place); err == nil {
			break
		}
		if len(errs) > 0 && errors.Is(err, os.ErrNotExist) {
			continue // the first of several places says enough
		}
		errs = append(errs, err)
	}
	if c == nil {
		hint := "is libvirtd running, and does it listen there?"
		if err := errors.Join(errs...); errors.Is(err, os.ErrPermission) {
			hint = "the agent's user may not open the socket; add it to the socket's group (often libvirt)"
		}
		return nil, fmt.Errorf("connecting to libvirtd at %s: %w (%s)", t, errors.Join(errs...), hint)
	}
	if !t.tls {
		return c, nil
	}
	conf, err := files.config(t.host)
	if err != nil {
		c.Close()
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	s := tls.Client(c, conf)
	if err := s.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("TLS with libvirtd at %s: %w", t, err)
	}
	// libvirtd says with one byte whether it accepts our certificate.
	var ok [1]byte
	_, err = io.ReadFull(s, ok[:])
	if err == nil && ok[0] != 1 {
		err = fmt.Errorf("it answered %d", ok[0])
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("TLS with libvirtd at %s: it did not accept our client certificate (%w); check cert, key and libvirtd's tls_allowed_dn_list", t, err)
	}
	return s, nil
}

// config reads the files anew at each connection, so that a renewed
// certificate needs no restart.
func (f TLSFiles) config(host string) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if f.ServerName != "" {
		conf.ServerName = f.ServerName
	}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("libvirt TLS: CA file: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("libvirt TLS: CA file %s holds no PEM certificate", f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("libvirt TLS: give both the client certificate and its key, or neither")
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("libvirt TLS: client certificate: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

// credentials gives the SASL user and password; empty when there are none.
func (o Options) credentials() (user, password string, err error) {
	if (o.Username == "") != (o.Password == "") {
		return "", "", errors.New("libvirt: give both the user name and the password, or neither")
	}
	if o.Username != "" || o.AuthFile == "" {
		return o.Username, o.Password, nil
	}
	section := o.AuthSection
	if section == "" {
		section = "credentials-default"
	}
	f, err := os.Open(o.AuthFile)
	if err != nil {
		return "", "", fmt.Errorf("libvirt auth file: %w", err)
	}
	defer f.Close()
	user, password, err = readAuthFile(f, section)
	if err != nil {
		return "", "", fmt.Errorf("libvirt auth file %s: %w", o.AuthFile, err)
	}
	return user, password, nil
}

// readAuthFile reads authname and password of one section of an INI file.
func readAuthFile(r io.Reader, section string) (user, password string, err error) {
	in, found := false, false
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' {
			in = strings.TrimSpace(strings.Trim(line, "[]")) == section
			found = found || in
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !in || !ok {
			continue
		}
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "authname", "username":
			user = value
		case "password":
			password = value
		}
	}
	switch {
	case lines.Err() != nil:
		return "", "", lines.Err()
	case !found:
		return "", "", fmt.Errorf("there is no section [%s]", section)
	case user == "" || password == "":
		return "", "", fmt.Errorf("section [%s] needs authname and password", section)
	}
	return user, password, nil
}

// open dials, authenticates and returns the guarded connection.
func (h *Host) open(ctx context.Context) (*guard, error) {
	user, password, err := h.opts.credentials()
	if err != nil {
		return nil, err
	}
	raw, err := h.target.dial(ctx, h.opts.TLS)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	c, err := (&authenticator{
		conn: raw, host: h.target.host, plain: h.target.network == "tcp" && !h.target.tls,
		user: user, password: password, only: h.mechanism,
	}).run()
	if err != nil {
		raw.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer within %s", h.deadline)
		}
		return nil, fmt.Errorf("authenticating with libvirtd at %s: %w", h.target, err)
	}
	if !stop() {
		return nil, fmt.Errorf("authenticating with libvirtd at %s: no answer within %s", h.target, h.deadline)
	}
	return newGuard(c, true), nil
}
