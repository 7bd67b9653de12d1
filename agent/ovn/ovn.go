// Package ovn says whose a port is: which network and project a vNIC of this
// host belongs to, read from OVN's Northbound database (or the Southbound one).
//
// libvirt decides what runs here, OVN only adds the owner. So answers are kept
// as last known: while the database is away, and when a row is deleted before
// the port's last traffic was read. Only a newer row replaces an answer.
//
// The database may hold 50,000 ports and this host 500, so only these are
// asked for: one monitor whose conditions name them. Conditions on anything
// else are dear for the server, and it is one process for the whole cloud.
//
// # Why one client per monitor
//
// The client library is ovn-org/libovsdb v0.7.0. It cannot change a monitor's
// conditions; while a second monitor is requested, an update to the first one
// blocks the reader that the second one's answer must come through (until the
// context ends); rows that match two monitors get each difference twice, which
// for a map means it is undone; an update for a cancelled monitor dereferences
// nil; and its own reconnecting panics when its backoff gives up. None of that
// happens to a client that has one monitor from its start to its end, so that
// is how it is used: ports that come later get a small client of their own,
// and when there are several, or many names are no longer here, one new client
// with all names replaces them.
package ovn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Options say where the database is and which ports count.
type Options struct {
	// Endpoints are tcp:host:port, ssl:host:port or unix:/path; several make a
	// cluster, any member will do.
	Endpoints []string
	// Southbound reads Port_Binding of the Southbound database instead of
	// Logical_Switch_Port of the Northbound one.
	Southbound bool
	// Chassis, with Southbound, asks for all ports bound to this chassis (its
	// system-id) instead of for names: the cheapest condition there is. It finds
	// nothing new while ovn-controller is stopped.
	Chassis string
	TLS     TLSFiles
	// DeviceOwner is a glob of the ports that are metered; compute:* when empty.
	// Neutron writes compute:<availability zone>.
	DeviceOwner string
	// Timeout bounds connecting and each call; 15 s when zero.
	Timeout time.Duration
	// MaxBackoff bounds the pause between attempts; 1 min when zero.
	MaxBackoff time.Duration
	Log        *slog.Logger
}

// TLSFiles are PEM files. As everywhere in OVS, the certificate of the server
// is checked against CA and not against a host name, unless ServerName is set.
type TLSFiles struct {
	CA, Cert, Key string
	ServerName    string
}

// Port is whose a port is.
type Port struct {
	PortUUID    uuid.UUID
	NetworkUUID uuid.UUID
	DeviceID    uuid.UUID // the instance that Neutron says the port belongs to
	DeviceOwner string
	ProjectID   string
}

// Tap is a vNIC whose domain XML names no port: it is found by its name's
// prefix of the port's UUID among the instance's ports.
type Tap struct {
	Name     string
	Instance uuid.UUID
}

const (
	defaultTimeout    = 15 * time.Second
	defaultMaxBackoff = time.Minute
	defaultOwner      = "compute:*"
)

// ErrClosed is what a closed Resolver answers.
var ErrClosed = errors.New("ovn: the resolver was closed")

func (o *Options) validate() error {
	var errs []error
	if len(o.Endpoints) == 0 {
		errs = append(errs, errors.New("ovn: no endpoint is given; use tcp:host:6641, ssl:host:6641 or unix:/path"))
	}
	secure := false
	for _, e := range o.Endpoints {
		kind, rest, _ := strings.Cut(e, ":")
		ok := false
		switch kind {
		case "unix":
			ok = rest != ""
		case "tcp", "ssl":
			host, port, err := net.SplitHostPort(rest)
			ok = err == nil && host != "" && port != "" && !strings.Contains(host, "/")
			secure = secure || kind == "ssl"
		}
		if !ok {
			errs = append(errs, fmt.Errorf("ovn: endpoint %q: use tcp:host:port, ssl:host:port or unix:/path", e))
		}
	}
	if secure && (o.TLS.CA == "" || o.TLS.Cert == "" || o.TLS.Key == "") {
		errs = append(errs, errors.New("ovn: an ssl: endpoint needs a CA, a certificate and a private key"))
	}
	if o.Chassis != "" && !o.Southbound {
		errs = append(errs, errors.New("ovn: a chassis is a matter of the Southbound database; leave it out or read that one"))
	}
	if _, err := path.Match(o.DeviceOwner, ""); err != nil {
		errs = append(errs, fmt.Errorf("ovn: device owner pattern %q: %w", o.DeviceOwner, err))
	}
	return errors.Join(errs...)
}

// config reads the files anew for each connection.
func (f TLSFiles) config() (*tls.Config, error) {
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("ovn TLS: CA file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ovn TLS: CA file %s holds no PEM certificate", f.CA)
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("ovn TLS: certificate: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		// OVN's certificates carry no host names; the chain is checked below.
		InsecureSkipVerify: true, //nolint:gosec // see VerifyConnection
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errors.New("ovn TLS: the server showed no certificate")
			}
			opts := x509.VerifyOptions{Roots: roots, DNSName: f.ServerName, Intermediates: x509.NewCertPool(),
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
			for _, c := range s.PeerCertificates[1:] {
				opts.Intermediates.AddCert(c)
			}
			_, err := s.PeerCertificates[0].Verify(opts)
			return err
		},
	}, nil
}
