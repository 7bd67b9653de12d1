package exporter

// Schemas lists the form of every dataset, that of FOCUS in its newest version.
func Schemas() []Schema {
	versions := FocusVersions()
	return []Schema{linesSchema, summarySchema, focusSchema(versions[len(versions)-1]), statementSchema}
}
