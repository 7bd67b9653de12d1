package jobs

// WithoutSecrets masks passwords that stand in URLs, for everything that is
// printed or kept.
func WithoutSecrets(texts []string) []string { return withoutSecrets(texts) }
