package config

import _ "embed"

//go:embed schema.json
var schema []byte

// Schema is the JSON Schema (draft 7) of the file, made from the types of control/api and
// their comments. It is for editors: what they see while a file is written is names, types
// and meanings. What is in other files, and what belongs together, [Load] looks at.
func Schema() []byte { return schema }
