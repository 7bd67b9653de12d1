package libvirt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// saslServer answers one exchange from a script: offered mechanisms, then one
// message per client message; "!" refuses. It returns what the client sent.
func saslServer(t *testing.T, mechanisms string, answers ...string) (net.Conn, func() []string) {
	t.Helper()
	client, server := net.Pipe()
	got := make(chan []string, 1)
	go func() {
		defer server.Close()
		var sent []string
		defer func() { got <- sent }()
		for {
			var h [headerSize]byte
			if _, err := io.ReadFull(server, h[:]); err != nil {
				return
			}
			body := make([]byte, binary.BigEndian.Uint32(h[:])-headerSize)
			if _, err := io.ReadFull(server, body); err != nil {
				return
			}
			proc := binary.BigEndian.Uint32(h[12:])
			var out []byte
			status := uint32(0)
			word := func(v uint32) { out = binary.BigEndian.AppendUint32(out, v) }
			switch proc {
			case procAuthList:
				word(1)
				word(authSASL)
			case procSASLInit:
				out = putString(out, mechanisms)
			default:
				r := reader{b: body}
				if proc == procSASLStart {
					r.bytes()
				}
				r.u32()
				var msg []byte
				for n := r.u32(); n > 0; n-- {
					msg = append(msg, byte(r.u32()))
				}
				sent = append(sent, string(msg))
				if len(answers) == 0 {
					return
				}
				a := answers[0]
				answers = answers[1:]
				if a == "!" {
					status = 1
					word(45)
					word(7)
					word(1)
					out = putString(out, "authentication failed")
					break
				}
				done := uint32(0)
				if len(answers) == 0 {
					done = 1
				}
				word(done)
				word(0)
				word(uint32(len(a)))
				for _, b := range []byte(a) {
					word(uint32(int32(int8(b))))
				}
			}
			binary.BigEndian.PutUint32(h[:], uint32(headerSize+len(out)))
			binary.BigEndian.PutUint32(h[16:], typeReply)
			binary.BigEndian.PutUint32(h[24:], status)
			if _, err := server.Write(append(h[:], out...)); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { client.Close() })
	return client, func() []string { client.Close(); return <-got }
}

// The examples of RFC 7677, section 3, and RFC 2831, section 4.
func TestSASLVectors(t *testing.T) {
	t.Run("SCRAM-SHA-256", func(t *testing.T) {
		c, sent := saslServer(t, "DIGEST-MD5,SCRAM-SHA-256",
			"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
			"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
		a := &authenticator{conn: c, user: "user", password: "pencil", nonce: func() string { return "rOprNGfwEbeRWgbNEkqO" }}
		if out, err := a.run(); err != nil || out != c {
			t.Fatal(err)
		}
		want := []string{"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
			"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="}
		if got := sent(); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("sent %q, want %q", got, want)
		}
	})
	digest := digestSession{user: "chris", password: "secret", realm: "elwood.innosoft.com", nonce: "OA6MG9tEQGm2hh",
		cnonce: "OA6MHXh6VqTrRk", uri: "imap/elwood.innosoft.com", qop: "auth"}
	t.Run("DIGEST-MD5", func(t *testing.T) {
		if got := digest.response(digest.ha1(), "AUTHENTICATE"); got != "d388dad90d4bbd760a152321f2143af7" {
			t.Errorf("response %s", got)
		}
		if got := digest.response(digest.ha1(), ""); got != "ea40f60335c427b5527b84dbabcdfffd" {
			t.Errorf("rspauth %s", got)
		}
	})
	t.Run("DIGEST-MD5 over TLS adds no layer", func(t *testing.T) {
		s := digest
		s.uri = "libvirt/host"
		c, sent := saslServer(t, "DIGEST-MD5", `realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8`,
			"rspauth="+s.response(s.ha1(), ""))
		a := &authenticator{conn: c, host: "host", user: "chris", password: "secret", nonce: func() string { return "OA6MHXh6VqTrRk" }}
		if out, err := a.run(); err != nil || out != c {
			t.Fatal(err)
		}
		if got := sent(); len(got) != 2 || got[0] != "" || !strings.Contains(got[1], "charset=utf-8") || !strings.Contains(got[1], `realm="elwood.innosoft.com"`) {
			t.Errorf("sent %q", got)
		}
	})
}

func TestSASLRefusals(t *testing.T) {
	challenge := `realm="r",nonce="n",qop="auth,auth-conf",cipher="rc4,3des",charset=utf-8`
	for name, tt := range map[string]struct {
		mechanisms string
		answers    []string
		plain      bool
		user, want string
		auth       bool
	}{
		"a wrong password, SCRAM":                              {"SCRAM-SHA-256", []string{"r=NONCEx,s=AAAA,i=4096", "!"}, false, "nova", "refused the user name or password", true},
		"a wrong password, DIGEST-MD5":                         {"DIGEST-MD5", []string{challenge, "!"}, true, "nova", "refused the user name or password", true},
		"the server closes instead of refusing":                {"DIGEST-MD5", []string{challenge}, true, "nova", "refused the user name or password", true},
		"a server that does not know the password, SCRAM":      {"SCRAM-SHA-256", []string{"r=NONCEx,s=AAAA,i=4096", "v=AAAA"}, false, "nova", "did not prove", false},
		"a server that does not know the password, DIGEST-MD5": {"DIGEST-MD5", []string{challenge, "rspauth=00"}, true, "nova", "did not prove", false},
		"another's nonce":                                      {"SCRAM-SHA-256", []string{"r=OTHER,s=AAAA,i=4096", ""}, false, "nova", "malformed", false},
		"our nonce alone":                                      {"SCRAM-SHA-256", []string{"r=NONCE,s=AAAA,i=4096", ""}, false, "nova", "malformed", false},
		"rounds without end":                                   {"SCRAM-SHA-256", []string{"r=NONCEx,s=AAAA,i=2000000000", ""}, false, "nova", "malformed", false},
		"no user is set":                                       {"SCRAM-SHA-256", nil, false, "", "wants a user name and password", false},
		"mechanisms nobody here speaks":                        {"GSSAPI,PLAIN", nil, false, "nova", "speaks SCRAM-SHA-256 and DIGEST-MD5", false},
		"plain TCP without encryption":                         {"DIGEST-MD5", []string{`realm="r",nonce="n",qop="auth"`}, true, "nova", "without encryption", false},
		"plain TCP with a broken cipher":                       {"DIGEST-MD5", []string{`realm="r",nonce="n",qop="auth-conf",cipher="3des"`}, true, "nova", "without rc4", false},
		"a challenge without a nonce":                          {"DIGEST-MD5", []string{"hello"}, true, "nova", "malformed", false},
	} {
		t.Run(name, func(t *testing.T) {
			c, done := saslServer(t, tt.mechanisms, tt.answers...)
			a := &authenticator{conn: c, host: "h", plain: tt.plain, user: tt.user, password: "s3cret", nonce: func() string { return "NONCE" }}
			_, err := a.run()
			if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, ErrAuth) != tt.auth {
				t.Errorf("error %v, want one that says %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Error("the password is in the error")
			}
			done()
		})
	}
}

// pair is two ends of the encryption layer: the server's keys are the
// client's, swapped.
func pair(t *testing.T) (client, server *digestLayer, raw net.Conn) {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	ha1 := md5Of("x")
	client, err := newDigestLayer(a, ha1, 4096)
	if err != nil {
		t.Fatal(err)
	}
	server, err = newDigestLayer(b, ha1, 4096)
	if err != nil {
		t.Fatal(err)
	}
	server.in, server.out = server.out, server.in
	return client, server, b
}

func TestDigestLayerCarriesAnything(t *testing.T) {
	client, server, _ := pair(t)
	message := bytes.Repeat([]byte("libvirt "), 5000)
	go func() {
		client.Write(message)
		client.Write([]byte("end"))
	}()
	got := make([]byte, len(message)+3)
	if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, append(message, "end"...)) {
		t.Fatalf("40 KB in packets of 4 KB: %v", err)
	}
}

func TestDigestLayerRefusesChangedPackets(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"a bit of the text":   func(b []byte) []byte { b[5] ^= 1; return b },
		"a bit of the MAC":    func(b []byte) []byte { b[len(b)-8] ^= 1; return b },
		"the sequence number": func(b []byte) []byte { b[len(b)-1]++; return b },
		"a length too small":  func(b []byte) []byte { binary.BigEndian.PutUint32(b, 3); return b },
		"a length too large":  func(b []byte) []byte { binary.BigEndian.PutUint32(b, 1<<30); return b },
	} {
		t.Run(name, func(t *testing.T) {
			client, server, raw := pair(t)
			go server.Write([]byte("some text"))
			sealed := make([]byte, 4+9+digestMAC+digestTail)
			if _, err := io.ReadFull(client.Conn, sealed); err != nil {
				t.Fatal(err)
			}
			go func() { raw.Write(change(sealed)); raw.Close() }()
			if _, err := client.Read(make([]byte, 100)); err == nil {
				t.Error("it was accepted")
			}
			if _, err := client.Read(make([]byte, 100)); err == nil {
				t.Error("reading went on after it")
			}
		})
	}
}

func TestDigestDirectives(t *testing.T) {
	got := digestDirectives(`realm="a, \"b\"",realm="second",nonce="x==",qop="auth,auth-conf" , maxbuf=65536,bad`)
	for k, want := range map[string]string{"realm": `a, "b"`, "nonce": "x==", "qop": "auth,auth-conf", "maxbuf": "65536"} {
		if got[k] != want {
			t.Errorf("%s = %q, want %q", k, got[k], want)
		}
	}
	if latin1("grün") != "gr\xfcn" || latin1("日本") != "日本" {
		t.Error("names within ISO 8859-1 are hashed in it, others as UTF-8")
	}
}

func FuzzDigestDirectives(f *testing.F) {
	f.Add(`realm="a",nonce="b",qop="auth"`)
	f.Add(`a="\`)
	f.Fuzz(func(t *testing.T, s string) { digestDirectives(s); scramAttributes(s) })
}
