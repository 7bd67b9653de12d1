package libvirt

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/rc4"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// digest is DIGEST-MD5 (RFC 2831). MD5 and RC4 are long broken; they are here
// because plain TCP with exactly this is what Kolla-Ansible deploys, and
// libvirt offers nothing better without TLS. Over TLS or a unix socket the
// mechanism adds no layer of its own.
func (a *authenticator) digest() (net.Conn, error) {
	_, challenge, err := a.step("DIGEST-MD5", nil)
	if err != nil {
		return nil, err
	}
	at := digestDirectives(string(challenge))
	if at["nonce"] == "" {
		return nil, errors.New("DIGEST-MD5 challenge is malformed")
	}
	s := digestSession{
		user: a.user, password: a.password, realm: at["realm"], nonce: at["nonce"], cnonce: a.nonce(),
		uri: "libvirt/" + a.host, qop: "auth", utf8: strings.EqualFold(at["charset"], "utf-8"),
	}
	if a.plain {
		s.qop = "auth-conf"
		if !listed(at["qop"], s.qop) {
			return nil, fmt.Errorf("on plain TCP it offers DIGEST-MD5 without encryption (qop %q); use qemu+tls, or set libvirtd's SASL security as shipped", at["qop"])
		}
		if !listed(at["cipher"], "rc4") {
			return nil, fmt.Errorf("on plain TCP it offers DIGEST-MD5 with ciphers %q, without rc4, the only one that libvirtd's cyrus-sasl still gets to work; use qemu+tls", at["cipher"])
		}
	}
	ha1 := s.ha1()
	message := s.message(ha1)
	done, last, err := a.step("", []byte(message))
	if err != nil {
		return nil, err
	}
	if got := digestDirectives(string(last))["rspauth"]; !hmac.Equal([]byte(got), []byte(s.response(ha1, ""))) {
		return nil, errors.New("the server did not prove that it knows the password (DIGEST-MD5 rspauth); is this libvirtd the one you mean?")
	}
	if err := a.finish("DIGEST-MD5", done); err != nil {
		return nil, err
	}
	if s.qop == "auth" {
		return a.conn, nil
	}
	limit, err := strconv.Atoi(at["maxbuf"])
	if err != nil {
		limit = 65536
	}
	return newDigestLayer(a.conn, ha1, limit)
}

func listed(list, want string) bool {
	for _, have := range strings.Split(list, ",") {
		if strings.EqualFold(strings.TrimSpace(have), want) {
			return true
		}
	}
	return false
}

type digestSession struct {
	user, password, realm, nonce, cnonce, uri, qop string
	utf8                                           bool
}

func md5Of(parts ...string) []byte {
	h := md5.Sum([]byte(strings.Join(parts, ":")))
	return h[:]
}

// ha1 is H(A1). Names within ISO 8859-1 are hashed in that encoding even when
// they are sent as UTF-8 (RFC 2831, section 2.1.2.1).
func (s digestSession) ha1() []byte {
	secret := md5Of(latin1(s.user), latin1(s.realm), latin1(s.password))
	return md5Of(string(secret), s.nonce, s.cnonce)
}

func latin1(s string) string {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 255 {
			return s
		}
		b = append(b, byte(r))
	}
	return string(b)
}

func (s digestSession) response(ha1 []byte, method string) string {
	a2 := []string{method, s.uri}
	if s.qop != "auth" {
		a2 = append(a2, strings.Repeat("0", 32))
	}
	return hex.EncodeToString(md5Of(hex.EncodeToString(ha1), s.nonce, "00000001", s.cnonce, s.qop, hex.EncodeToString(md5Of(a2...))))
}

func (s digestSession) message(ha1 []byte) string {
	q := func(v string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"` }
	user, charset := s.user, ""
	if s.utf8 {
		charset = ",charset=utf-8"
	} else {
		user = latin1(user)
	}
	cipher := ""
	if s.qop == "auth-conf" {
		cipher = ",cipher=rc4"
	}
	return "username=" + q(user) + ",realm=" + q(s.realm) + ",nonce=" + q(s.nonce) + ",cnonce=" + q(s.cnonce) +
		",nc=00000001,qop=" + s.qop + cipher + ",maxbuf=65536,digest-uri=" + q(s.uri) + charset +
		",response=" + s.response(ha1, "AUTHENTICATE")
}

// digestDirectives parses comma-separated, possibly quoted pairs. Of a
// repeated one (realm) the first counts.
func digestDirectives(s string) map[string]string {
	m := map[string]string{}
	for s = strings.TrimLeft(s, " ,"); s != ""; s = strings.TrimLeft(s, " ,") {
		k, rest, ok := strings.Cut(s, "=")
		if !ok {
			break
		}
		var v strings.Builder
		i := 0
		if strings.HasPrefix(rest, `"`) {
			for i = 1; i < len(rest) && rest[i] != '"'; i++ {
				if rest[i] == '\\' && i+1 < len(rest) {
					i++
				}
				v.WriteByte(rest[i])
			}
			i = min(i+1, len(rest))
		} else {
			for ; i < len(rest) && rest[i] != ','; i++ {
				v.WriteByte(rest[i])
			}
		}
		s = rest[i:]
		if k = strings.ToLower(strings.TrimSpace(k)); k != "" {
			if _, dup := m[k]; !dup {
				m[k] = v.String()
			}
		}
	}
	return m
}

// digestLayer is DIGEST-MD5's confidentiality layer with RC4 (RFC 2831,
// section 2.4): each packet is a length, the sealed message with ten bytes of
// MAC, a type and a sequence number.
type digestLayer struct {
	net.Conn
	out, in half
	limit   int // of a packet's plain bytes
	plain   []byte
	broken  error // after a bad packet nothing more is read
}

type half struct {
	sign   []byte
	cipher *rc4.Cipher
	seq    uint32
}

const (
	digestMAC  = 10
	digestTail = 6
	// maxSealed is what we told the server we take, with room for its framing.
	maxSealed = 65536 + 64
)

func newDigestLayer(c net.Conn, ha1 []byte, serverLimit int) (*digestLayer, error) {
	key := func(magic string) []byte { h := md5.Sum(append(append([]byte{}, ha1...), magic...)); return h[:] }
	mk := func(sign, seal string) (half, error) {
		k, err := rc4.NewCipher(key(seal))
		return half{sign: key(sign), cipher: k}, err
	}
	l := &digestLayer{Conn: c, limit: serverLimit - digestMAC - digestTail - 4}
	if l.limit < 64 || serverLimit > 1<<24 {
		return nil, fmt.Errorf("DIGEST-MD5: the server takes packets of %d bytes", serverLimit)
	}
	var err error
	if l.out, err = mk("Digest session key to client-to-server signing key magic constant", "Digest H(A1) to client-to-server sealing key magic constant"); err != nil {
		return nil, err
	}
	l.in, err = mk("Digest session key to server-to-client signing key magic constant", "Digest H(A1) to server-to-client sealing key magic constant")
	return l, err
}

func (h *half) mac(msg []byte) []byte {
	m := hmac.New(md5.New, h.sign)
	m.Write(binary.BigEndian.AppendUint32(nil, h.seq))
	m.Write(msg)
	return m.Sum(nil)[:digestMAC]
}

func (l *digestLayer) Write(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		msg := p[sent:min(len(p), sent+l.limit)]
		n := len(msg) + digestMAC
		buf := make([]byte, 4, 4+n+digestTail)
		binary.BigEndian.PutUint32(buf, uint32(n+digestTail))
		buf = append(append(buf, msg...), l.out.mac(msg)...)
		l.out.cipher.XORKeyStream(buf[4:], buf[4:])
		buf = binary.BigEndian.AppendUint32(append(buf, 0, 1), l.out.seq)
		l.out.seq++
		if _, err := l.Conn.Write(buf); err != nil {
			return sent, err
		}
		sent += len(msg)
	}
	return sent, nil
}

func (l *digestLayer) Read(p []byte) (int, error) {
	for len(l.plain) == 0 {
		if l.broken != nil {
			return 0, l.broken
		}
		if l.plain, l.broken = l.packet(); l.broken != nil {
			return 0, l.broken
		}
	}
	n := copy(p, l.plain)
	l.plain = l.plain[n:]
	return n, nil
}

func (l *digestLayer) packet() ([]byte, error) {
	var h [4]byte
	if _, err := io.ReadFull(l.Conn, h[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(h[:])
	if n < digestMAC+digestTail || n > maxSealed {
		return nil, fmt.Errorf("DIGEST-MD5: a packet of %d bytes", n)
	}
	buf := make([]byte, n)
	if _, err := io.ReadFull(l.Conn, buf); err != nil {
		return nil, err
	}
	body, tail := buf[:n-digestTail], buf[n-digestTail:]
	if tail[0] != 0 || tail[1] != 1 || binary.BigEndian.Uint32(tail[2:]) != l.in.seq {
		return nil, errors.New("DIGEST-MD5: a packet out of sequence")
	}
	l.in.cipher.XORKeyStream(body, body)
	msg, mac := body[:len(body)-digestMAC], body[len(body)-digestMAC:]
	if !hmac.Equal(mac, l.in.mac(msg)) {
		return nil, errors.New("DIGEST-MD5: a packet was changed on the way (its MAC is wrong)")
	}
	l.in.seq++
	return msg, nil
}
