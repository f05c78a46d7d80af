package state

import (
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/ticket"
)

// What the store is made for.
var (
	_ ticket.Storage     = (*Store)(nil)
	_ auth.IdentityStore = (*Store)(nil)
	_ auth.Ledger        = (*Store)(nil)
)
