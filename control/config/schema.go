package config

import _ "embed"

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (draft 7) of the file, generated from the types of control/api and
// their comments. It is for editors, which show names, types and meanings. [Load] checks other
// files, and what belongs together.
func Schema() []byte { return schema }
