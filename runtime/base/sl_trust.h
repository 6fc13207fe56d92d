/* runtime/base/sl_trust.h - checks files that hold a secret or grant a right (key files, passwords,
 * tokens, lists of peers): whether another user could read or have written them. */
#ifndef SL_TRUST_H
#define SL_TRUST_H

#include "runtime/base/sl_error.h"

/* Mode bits that the file must not have. Of root's files the group may read a secret; a group with
 * the owner's own number may write files that grant a right. */
#define SL_TRUST_SECRET 0077u /* no other user may read it */
#define SL_TRUST_GROUP  0027u /* its group may read it: a service whose settings are root's */
#define SL_TRUST_RIGHT  0022u /* no other user may write it */

/* Reads the whole file, up to room - 1 bytes, and adds a zero. The file, and a link that leads to
 * it, must belong to this user or root; the file must be regular and have none of the `refused`
 * bits. No directory above it may belong to another user or let others rename files that are not
 * theirs (allowed: the sticky bit, as in /tmp, or write access for a group with the owner's own
 * number, as with umask 002). placed: the caller has already called sl_trust_directory for its
 * directory. Errors: SL_ERR_NOT_FOUND; SL_ERR_CONFIG (all others). */
sl_err sl_trust_read(const char *path, uint32_t refused, bool placed, char *out, size_t room,
                     struct sl_error *why);
/* Checks a directory and those above it in the same way, without reading. Errors: SL_ERR_FOREIGN
 * (one belongs to another user, who could replace its files); SL_ERR_CONFIG. */
sl_err sl_trust_directory(const char *directory, struct sl_error *why);
/* Checks that no other user could replace the file at this path: no directory above it belongs to
 * another user (SL_ERR_FOREIGN) or lets others rename files that are not theirs
 * (SL_ERR_PERMISSION). */
sl_err sl_file_path_check(const char *path, struct sl_error *why);

#endif
