/* ipc/msg/sl_curve.h - ZeroMQ between nodes: its context, and the keys by which nodes know each
 * other, made by `sluicectl keygen`, read by the transporter.
 *
 * A directory holds NODE.secret (this node's own pair, mode 0600) and NAME.pub for every node that
 * may connect to it or is asked by it; the file's name is the peer's name. Both are lines of
 * `word = value`; keys are Z85 text of 40 characters (CurveZMQ). A file that another user could
 * have put there counts as none (runtime/base/sl_trust.h). */
#ifndef SL_CURVE_H
#define SL_CURVE_H

#include "runtime/base/sl_error.h"

#define SL_CURVE_TEXT_BYTES  41u /* with the terminating zero */
#define SL_CURVE_ALLOWED_MAX 4096u

struct sl_curve_pair {
    char public_text[SL_CURVE_TEXT_BYTES];
    char secret_text[SL_CURVE_TEXT_BYTES];
};

/* Makes DIRECTORY/NODE.secret and DIRECTORY/NODE.pub; the directory, and those above it, are
 * made 0700 when they are not there. Errors: SL_ERR_EXISTS (there is a secret: nothing is
 * overwritten), SL_ERR_INVALID (name), SL_ERR_UNSUPPORTED (a ZeroMQ without CURVE),
 * SL_ERR_CONFIG (others could replace what is in the directory), SL_ERR_FOREIGN, SL_ERR_PERMISSION,
 * SL_ERR_OS. */
sl_err sl_curve_make(const char *directory, const char *node, struct sl_error *why);
/* Errors: SL_ERR_CONFIG (no file, one that others could read or have written, no key in it). */
sl_err sl_curve_load(const char *directory, const char *node, struct sl_curve_pair *out,
                     struct sl_error *why);
/* Public key of a peer. Errors: SL_ERR_CONFIG. */
sl_err sl_curve_load_public(const char *directory, const char *node, char out[SL_CURVE_TEXT_BYTES],
                            struct sl_error *why);
/* Whose key this is: fills name (32 bytes) from the NAME.pub that holds it. SL_ERR_PERMISSION:
 * nobody's. */
sl_err sl_curve_who(const char *directory, const char public_text[SL_CURVE_TEXT_BYTES],
                    char name[32]);
/* A context of ZeroMQ. Its first socket makes threads and descriptors, and libzmq aborts the
 * process that cannot have them: so they are tried here first. Gives it for zmq_ctx_term. Errors:
 * SL_ERR_LIMIT (no more descriptors or threads for this process), SL_ERR_OS. */
sl_err sl_zmq_context_open(void **out, struct sl_error *why);
/* Z85 text of the 32 bytes of a key. */
void sl_curve_text(const unsigned char key[32], char out[SL_CURVE_TEXT_BYTES]);

#endif
