package underlay

// New returns the lean bind.
func New(o Options) *Bind { return newBind(newLean(o), o) }
