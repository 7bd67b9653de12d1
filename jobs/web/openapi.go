package web

import _ "embed"

// OpenAPI is openapi.yaml, the contract of the API.
//
//go:embed openapi.yaml
var OpenAPI []byte
