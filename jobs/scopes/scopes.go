// Package scopes is the job that learns which scopes there are and what they
// are called. Usage itself names every scope that is rated; a fetcher adds
// names and domains, and scopes that have no usage yet. A fetcher that fails
// takes nothing away: the scopes known so far stay and are rated.
package scopes

import (
	"context"
	"log/slog"

	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Scope is what a fetcher knows of one.
type Scope struct {
	ID, Name, Domain string
}

// Fetcher lists scopes. An error means that nothing of the list counts.
type Fetcher interface {
	Name() string // kept with the scopes it listed
	Fetch(ctx context.Context) ([]Scope, error)
}

// Job stores what a fetcher lists.
type Job struct {
	Store  *store.Store
	Log    *slog.Logger
	Author string
}

// Result says what came of one fetch.
type Result struct {
	Fetcher string `json:"fetcher"`
	Listed  int    `json:"listed"`
	Changed int    `json:"changed"` // new ones and those with another name or domain
}

// Run fetches the whole list, then stores what is new in it. A scope that is
// disabled stays disabled, and one that is no longer listed stays as it is:
// what it used has to be billed.
func (j *Job) Run(ctx context.Context, f Fetcher) (Result, error) {
	result := Result{Fetcher: f.Name()}
	if err := j.Store.CheckSchema(ctx); err != nil {
		return result, err
	}
	list, err := f.Fetch(ctx)
	if err != nil {
		return result, err
	}
	known, err := j.Store.ScopeStates(ctx)
	if err != nil {
		return result, err
	}
	result.Listed = len(list)
	var changed []store.ScopeState
	seen := map[string]bool{}
	for _, x := range list {
		if seen[x.ID] {
			continue // a page that shifted while it was read lists a project twice
		}
		seen[x.ID] = true
		old, ok := known[x.ID]
		// A list of bare IDs says nothing about names: those that are known stay.
		if x.Name == "" {
			x.Name = old.Name
		}
		if x.Domain == "" {
			x.Domain = old.Domain
		}
		if ok && old.Name == x.Name && old.Domain == x.Domain {
			continue
		}
		changed = append(changed, store.ScopeState{Scope: x.ID, Name: x.Name, Domain: x.Domain, Fetcher: f.Name()})
	}
	result.Changed = len(changed)
	return result, j.Store.NameScopes(ctx, changed, j.Author)
}
