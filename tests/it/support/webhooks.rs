//! Jobs whose webhook can be opened, what signs it, and who delivers it: the real handler, or the real process.
