/* runtime/base/sl_trust.h - files that hold a secret or give a right (key files, passwords, tokens,
 * lists of peers): who else could read them, or have written them. */
#ifndef SL_TRUST_H
#define SL_TRUST_H

#include "runtime/base/sl_error.h"

/* Bits that the mode of the file must not have. Of root's files their group may read a secret; a
 * group of the owner's own number may write what gives a right. */
#define SL_TRUST_SECRET 0077u /* nobody else may read it */
#define SL_TRUST_GROUP  0027u /* its group may, as a service whose settings are root's */
#define SL_TRUST_RIGHT  0022u /* nobody else may write it */

/* Reads the whole file, up to room - 1 bytes, and ends it with a zero. The file must be a plain one
 * of this user or root, without the bits of refused; so must be a link that leads to it. No
 * directory above it may be another user's, or one in which others can rename what is not theirs
 * (/tmp is fine: it has the sticky bit; so is a group of the owner's own number, as where the umask
 * is 002). placed: sl_trust_place has been asked for its directory. Errors: SL_ERR_NOT_FOUND;
 * SL_ERR_CONFIG (all others). */
sl_err sl_trust_read(const char *path, uint32_t refused, bool placed, char *out, size_t room,
                     struct sl_error *why);
/* The same of a directory and those above it, without reading anything. Errors: SL_ERR_FOREIGN (one
 * belongs to another user, who alone could replace what is there); SL_ERR_CONFIG. */
sl_err sl_trust_place(const char *directory, struct sl_error *why);
/* Whether nobody else could put another file in the place of the one at this path: no directory
 * above it is another user's (SL_ERR_FOREIGN), or one in which others can rename what is not theirs
 * (SL_ERR_PERMISSION). */
sl_err sl_file_place_check(const char *path, struct sl_error *why);

#endif
