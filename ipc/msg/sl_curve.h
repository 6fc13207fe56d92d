/* ipc/msg/sl_curve.h - ZeroMQ between nodes: its context, and the keys that authenticate nodes
 * (made by `sluicectl keygen`, read by the transporter).
 *
 * A directory holds NODE.secret (this node's key pair, mode 0600) and NAME.pub for every node that
 * may connect to it or to which it connects; the file's name is the peer's name. Both consist of
 * lines `word = value`; keys are Z85 text of 40 characters (CurveZMQ). A file that another user
 * could have put there is ignored (runtime/base/sl_trust.h). */
#ifndef SL_CURVE_H
#define SL_CURVE_H

#include "runtime/base/sl_error.h"

#define SL_CURVE_TEXT_BYTES  41u /* with the terminating zero */
#define SL_CURVE_ALLOWED_MAX 4096u

struct sl_curve_pair {
    char public_text[SL_CURVE_TEXT_BYTES];
    char secret_text[SL_CURVE_TEXT_BYTES];
};

/* Creates DIRECTORY/NODE.secret and DIRECTORY/NODE.pub. Missing directories are created with mode
 * 0700. Errors: SL_ERR_EXISTS (there is a secret; nothing is overwritten), SL_ERR_INVALID (name),
 * SL_ERR_UNSUPPORTED (a ZeroMQ without CURVE), SL_ERR_CONFIG (others could replace files in the
 * directory), SL_ERR_FOREIGN, SL_ERR_PERMISSION, SL_ERR_OS. */
sl_err sl_curve_make(const char *directory, const char *node, struct sl_error *why);
/* Loads the node's key pair. Errors: SL_ERR_CONFIG (no file, no key in it, or other users can read
 * or write it). */
sl_err sl_curve_load(const char *directory, const char *node, struct sl_curve_pair *out,
                     struct sl_error *why);
/* Loads the public key of a peer. Errors: SL_ERR_CONFIG. */
sl_err sl_curve_load_public(const char *directory, const char *node, char out[SL_CURVE_TEXT_BYTES],
                            struct sl_error *why);
/* Finds the NAME.pub that holds this key, and fills name (32 bytes). SL_ERR_PERMISSION: there is
 * none. */
sl_err sl_curve_who(const char *directory, const char public_text[SL_CURVE_TEXT_BYTES],
                    char name[32]);
/* Opens a ZeroMQ context, to be closed with zmq_ctx_term. Its first socket creates threads and
 * descriptors, and libzmq aborts the process if it cannot; so this is tried first. Errors:
 * SL_ERR_LIMIT (no more descriptors or threads for this process), SL_ERR_OS. */
sl_err sl_zmq_context_open(void **out, struct sl_error *why);
/* Gives the Z85 text of a key of 32 bytes. */
void sl_curve_text(const unsigned char key[32], char out[SL_CURVE_TEXT_BYTES]);

#endif
