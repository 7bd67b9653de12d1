package exporter

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// SignatureName is the file with the signature of the manifest beside it. It is
// written before the manifest and names the manifest's checksum, so a reader
// that comes between the two sees that they do not belong together yet.
const SignatureName = "_manifest.sig"

// sign gives the signature's file: the checksum of the text and the signature
// of the text, both in one line each.
func sign(key ed25519.PrivateKey, text []byte) []byte {
	sum := sha256.Sum256(text)
	return fmt.Appendf(nil, "sha256:%s\ned25519:%s\n", hex.EncodeToString(sum[:]), base64.StdEncoding.EncodeToString(ed25519.Sign(key, text)))
}

var (
	errNotSigned      = errors.New("the manifest is not signed")
	errSignature      = errors.New("the manifest's signature is not that of the key")
	errOtherSignature = fmt.Errorf("%w: it belongs to another manifest", errSignature)
)

func checkSignature(key ed25519.PublicKey, text, signature []byte) error {
	sum := sha256.Sum256(text)
	lines := strings.Split(strings.TrimSpace(string(signature)), "\n")
	if len(lines) != 2 || lines[0] != "sha256:"+hex.EncodeToString(sum[:]) {
		return errOtherSignature
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(lines[1], "ed25519:"))
	if err != nil || !ed25519.Verify(key, text, raw) {
		return errSignature
	}
	return nil
}

// ParseSignKey reads a private key in PKCS #8 PEM, as
// 'openssl genpkey -algorithm ed25519' writes it.
func ParseSignKey(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(bytes.TrimSpace(text))
	if block == nil {
		return nil, errors.New("no PEM block")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	if key, ok := key.(ed25519.PrivateKey); ok {
		return key, nil
	}
	return nil, fmt.Errorf("a key of type %T, not ed25519", key)
}

// ParseVerifyKey reads a public key in PEM, as 'openssl pkey -pubout' writes it.
func ParseVerifyKey(text []byte) (ed25519.PublicKey, error) {
	block, _ := pem.Decode(bytes.TrimSpace(text))
	if block == nil {
		return nil, errors.New("no PEM block")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	if key, ok := key.(ed25519.PublicKey); ok {
		return key, nil
	}
	return nil, fmt.Errorf("a key of type %T, not ed25519", key)
}
