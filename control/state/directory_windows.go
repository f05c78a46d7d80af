package state

import "io/fs"

// ownerOf returns no owner: the directory's access control list says who may enter it.
func ownerOf(fs.FileInfo) (uid int, known bool) { return 0, false }
