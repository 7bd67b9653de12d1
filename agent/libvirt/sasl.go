package libvirt

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"golang.org/x/text/unicode/norm"
)

const (
	procAuthList  = 66
	procSASLInit  = 67
	procSASLStart = 68
	procSASLStep  = 69

	authSASL = 1

	// maxAuthReply bounds a reply before anyone has authenticated.
	maxAuthReply = 1 << 20
	maxSASLData  = 64 << 10
)

// ErrAuth is libvirtd's refusal of the user name or password.
var ErrAuth = errors.New("libvirtd refused the user name or password")

// authenticator runs SASL on a raw connection, before go-libvirt gets it.
type authenticator struct {
	conn           net.Conn
	host           string
	plain          bool // no TLS, no unix socket: libvirt wants SASL's own encryption
	user, password string
	serial         uint32

	nonce func() string // tests fix it
	only  string        // tests choose a mechanism
}

// run returns the connection to go on with: the same one, or one that encrypts.
func (a *authenticator) run() (net.Conn, error) {
	if a.nonce == nil {
		a.nonce = func() string {
			b := make([]byte, 24)
			rand.Read(b) // never fails
			return base64.StdEncoding.EncodeToString(b)
		}
	}
	body, err := a.call(procAuthList, nil)
	if err != nil {
		return nil, err
	}
	r := reader{b: body}
	wanted := false
	for n := r.u32(); n > 0 && r.err == nil; n-- {
		wanted = r.u32() == authSASL || wanted
	}
	if r.err != nil {
		return nil, r.err
	}
	if !wanted {
		return a.conn, nil
	}
	if a.user == "" {
		return nil, errors.New("it wants a user name and password (SASL); set the libvirt user name and password, or the auth file")
	}
	body, err = a.call(procSASLInit, nil)
	if err != nil {
		return nil, err
	}
	r = reader{b: body}
	offered := strings.FieldsFunc(string(r.bytes()), func(c rune) bool { return c == ',' || c == ' ' })
	has := func(mech string) bool {
		for _, o := range offered {
			if strings.EqualFold(o, mech) {
				return a.only == "" || a.only == mech
			}
		}
		return false
	}
	switch {
	case has("SCRAM-SHA-256"):
		return a.conn, a.scram()
	case has("DIGEST-MD5"):
		return a.digest()
	}
	return nil, fmt.Errorf("it offers SASL mechanisms %v; this agent speaks SCRAM-SHA-256 and DIGEST-MD5 (mech_list in libvirtd's sasl2/libvirt.conf)", offered)
}

// step sends one client message (mech starts an exchange) and returns the
// server's. data nil is "no initial response", which differs from an empty one.
func (a *authenticator) step(mech string, data []byte) (complete bool, out []byte, err error) {
	var b []byte
	proc := uint32(procSASLStep)
	if mech != "" {
		proc, b = procSASLStart, putString(b, mech)
	}
	absent := uint32(0)
	if data == nil {
		absent = 1
	}
	b = binary.BigEndian.AppendUint32(b, absent)
	// The protocol says "char data<>": an array of chars, four bytes each.
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	for _, x := range data {
		b = binary.BigEndian.AppendUint32(b, uint32(int32(int8(x))))
	}
	body, err := a.call(proc, b)
	if err != nil {
		var refused *callError
		if errors.As(err, &refused) {
			return false, nil, fmt.Errorf("%w (user %q): %w", ErrAuth, a.user, err)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return false, nil, fmt.Errorf("%w (user %q): it closed the connection", ErrAuth, a.user)
		}
		return false, nil, err
	}
	r := reader{b: body}
	complete = r.u32() != 0
	r.u32()
	n := r.u32()
	if n > maxSASLData {
		return false, nil, fmt.Errorf("a SASL message of %d bytes", n)
	}
	for ; n > 0 && r.err == nil; n-- {
		out = append(out, byte(r.u32()))
	}
	return complete, out, r.err
}

// finish sends the empty steps that cyrus-sasl may still expect.
func (a *authenticator) finish(mech string, done bool) error {
	if done {
		return nil
	}
	done, _, err := a.step("", []byte{})
	if err != nil {
		return err
	}
	if !done {
		return fmt.Errorf("%s did not complete", mech)
	}
	return nil
}

// scram is SCRAM-SHA-256 (RFC 5802, RFC 7677) without channel binding.
func (a *authenticator) scram() error {
	nonce := a.nonce()
	bare := "n=" + strings.NewReplacer("=", "=3D", ",", "=2C").Replace(norm.NFKC.String(a.user)) + ",r=" + nonce
	_, first, err := a.step("SCRAM-SHA-256", []byte("n,,"+bare))
	if err != nil {
		return err
	}
	at := scramAttributes(string(first))
	salt, err := base64.StdEncoding.DecodeString(at["s"])
	if err != nil {
		return fmt.Errorf("SCRAM challenge: salt: %w", err)
	}
	rounds, err := strconv.Atoi(at["i"])
	// A million rounds take about a second; more is a trap.
	if err != nil || rounds < 1 || rounds > 1_000_000 || !strings.HasPrefix(at["r"], nonce) || len(at["r"]) == len(nonce) || at["m"] != "" {
		return errors.New("SCRAM challenge is malformed")
	}
	key, err := pbkdf2.Key(sha256.New, norm.NFKC.String(a.password), salt, rounds, sha256.Size)
	if err != nil {
		return err
	}
	mac := func(k []byte, s string) []byte { h := hmac.New(sha256.New, k); h.Write([]byte(s)); return h.Sum(nil) }
	clientKey := mac(key, "Client Key")
	stored := sha256.Sum256(clientKey)
	final := "c=biws,r=" + at["r"]
	message := bare + "," + string(first) + "," + final
	proof := make([]byte, sha256.Size)
	subtle.XORBytes(proof, clientKey, mac(stored[:], message))
	done, last, err := a.step("", []byte(final+",p="+base64.StdEncoding.EncodeToString(proof)))
	if err != nil {
		return err
	}
	got, _ := base64.StdEncoding.DecodeString(scramAttributes(string(last))["v"])
	if !hmac.Equal(got, mac(mac(key, "Server Key"), message)) {
		return errors.New("the server did not prove that it knows the password (SCRAM signature); is this libvirtd the one you mean?")
	}
	return a.finish("SCRAM-SHA-256", done)
}

func scramAttributes(s string) map[string]string {
	m := map[string]string{}
	for _, kv := range strings.Split(s, ",") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			m[k] = v
		}
	}
	return m
}

// callError is an error that libvirtd itself answered.
type callError struct {
	Code    uint32
	Message string
}

func (e *callError) Error() string { return fmt.Sprintf("libvirt error %d: %s", e.Code, e.Message) }

// call is one RPC on the raw connection.
func (a *authenticator) call(proc uint32, body []byte) ([]byte, error) {
	a.serial++
	b := binary.BigEndian.AppendUint32(nil, uint32(headerSize+len(body)))
	for _, v := range []uint32{remoteProgram, 1, proc, 0, a.serial, 0} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	if _, err := a.conn.Write(append(b, body...)); err != nil {
		return nil, err
	}
	var h [headerSize]byte
	if _, err := io.ReadFull(a.conn, h[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(h[:])
	if n < headerSize || n > maxAuthReply {
		return nil, fmt.Errorf("a reply of %d bytes", n)
	}
	reply := make([]byte, n-headerSize)
	if _, err := io.ReadFull(a.conn, reply); err != nil {
		return nil, err
	}
	if binary.BigEndian.Uint32(h[12:]) != proc || binary.BigEndian.Uint32(h[20:]) != a.serial {
		return nil, errors.New("a reply that belongs to no call")
	}
	if binary.BigEndian.Uint32(h[24:]) != 0 {
		r := reader{b: reply}
		e := &callError{Code: r.u32()}
		r.u32()
		if r.u32() != 0 {
			e.Message = string(r.bytes())
		}
		return nil, e
	}
	return reply, nil
}

// reader reads XDR; past the end it gives zeros and an error.
type reader struct {
	b   []byte
	err error
}

func (r *reader) u32() uint32 {
	if len(r.b) < 4 {
		r.b, r.err = nil, io.ErrUnexpectedEOF
		return 0
	}
	v := binary.BigEndian.Uint32(r.b)
	r.b = r.b[4:]
	return v
}

func (r *reader) bytes() []byte {
	n := int(r.u32())
	if n > len(r.b) {
		r.b, r.err = nil, io.ErrUnexpectedEOF
		return nil
	}
	s := r.b[:n]
	r.b = r.b[min(len(r.b), (n+3)&^3):]
	return s
}

func putString(b []byte, s string) []byte {
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
	for range -len(s) & 3 {
		b = append(b, 0)
	}
	return b
}
