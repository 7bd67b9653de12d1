package store

import (
	"context"
	"slices"
)

// nameChunk bounds the parameters of one statement, which over HTTP are part of
// its address.
const nameChunk = 500

// NameScopes stores the names and domains that a fetcher listed; whether a
// scope is rated stays as it is.
func (s *Store) NameScopes(ctx context.Context, list []ScopeState, author string) error {
	for part := range slices.Chunk(list, nameChunk) {
		var scopes, names, domains []string
		for _, x := range part {
			scopes, names, domains = append(scopes, x.Scope), append(names, x.Name), append(domains, x.Domain)
		}
		if err := s.Exec(ctx, "name_scopes", Params{"scopes": scopes, "names": names, "domains": domains, "fetcher": part[0].Fetcher, "author": author}); err != nil {
			return err
		}
	}
	return nil
}
