/* actors/transporter/handover/grants.c - rights of decode's node to read the parts of loans. A part
 * has one right, from the first message that names it until all of it was read or the loan ends. */
#include "actors/transporter/handover/internal.h"

void ho_right_end(struct handover *ho, struct ho_share *share)
{
    if (share->right == RIGHT_ASKED || share->right == RIGHT_READY) {
        share->right = RIGHT_ENDS;
        (void)sl_fabric_grant_end(ho->self->fabric, share->grant);
        ho->self->env->ops->wake_at(ho->self->env, 0);
    }
}

void ho_rights_end(struct handover *ho, struct ho_loan *loan)
{
    for (uint32_t i = 0; loan->grants_open > 0 && i < loan->share_count; i++) {
        ho_right_end(ho, &loan->shares[i]);
    }
}

/* Creates the right to read a part. *own: only this loan's own rights use up the limit. */
static sl_err right_make(struct handover *ho, struct ho_loan *loan, uint32_t part, bool *own,
                         struct sl_error *why)
{
    struct transporter *self = ho->self;
    struct ho_share *share = &loan->shares[part];
    struct sl_fabric_grant want = {.peer = self->peers[loan->peer].fabric_peer,
                                   .length_bytes = share->length_bytes,
                                   .places = ho->places};
    uint32_t handle = 0;
    sl_err err =
        tr_slot_places(self, &share->slot, (struct tr_range){.length_bytes = share->length_bytes},
                       ho->places, SL_FABRIC_PLACES_MAX, &want.place_count, why);
    if (err == SL_OK && want.place_count > HO_LOAN_PLACES_MAX - ho->places_open) {
        err = sl_fail(why, SL_ERR_LIMIT, "loans use %u memory ranges", ho->places_open);
        *own = ho->places_open == loan->places_open;
    }
    err = err == SL_OK ? sl_fabric_grant_add(self->fabric, &want, &handle, why) : err;
    if (err != SL_OK) {
        return err;
    }
    loan->grants_open++;
    loan->places_open += want.place_count;
    ho->places_open += want.place_count;
    share->place_count = want.place_count;
    share->grant = handle;
    share->right = RIGHT_ASKED;
    ho->grants[handle & 0xffffu] = (struct ho_grant){
        .used = true, .handle = handle, .loan = (uint32_t)(loan - ho->loans), .part = part};
    self->env->ops->wake_at(self->env, 0);
    return SL_OK;
}

sl_err ho_rights_make(struct handover *ho, struct ho_loan *loan, const struct ho_message *message,
                      struct sl_error *why)
{
    bool ready = true;
    for (uint32_t i = 0; i < message->piece_count; i++) {
        uint32_t part = (uint32_t)message->pieces[i].part;
        bool own = false;
        sl_err err =
            loan->shares[part].right == RIGHT_NONE ? right_make(ho, loan, part, &own, why) : SL_OK;
        if (err != SL_OK) {
            ho_due(ho, ho_now(ho) + HO_SOON_NS);
            /* BUSY if waiting helps: other loans' rights end, links come up (verbs), and the loan's
             * own rights end after its first message was read. */
            bool may_come = err == SL_ERR_BUSY || err == SL_ERR_UNREACHABLE ||
                            (err == SL_ERR_LIMIT && !(own && message == loan->messages));
            return may_come ? SL_ERR_BUSY : err;
        }
        ready = ready && loan->shares[part].right == RIGHT_READY;
    }
    return ready ? SL_OK : SL_ERR_BUSY;
}

/* ---- callbacks of the fabric ---- */

static struct ho_grant *grant_of(struct handover *ho, uint32_t handle)
{
    struct ho_grant *grant = ho != NULL ? &ho->grants[handle & 0xffffu] : NULL;
    return grant != NULL && grant->used && grant->handle == handle ? grant : NULL;
}

bool tr_lend_granted(struct transporter *self, uint32_t handle, const struct sl_bytes *key,
                     const struct sl_error *why)
{
    struct handover *ho = self->handover;
    struct ho_grant *grant = grant_of(ho, handle);
    if (grant == NULL) {
        return false;
    }
    struct ho_loan *loan = &ho->loans[grant->loan];
    struct ho_share *share = &loan->shares[grant->part];
    if (share->right == RIGHT_ENDS) {
        return true;
    }
    if (key->length == 0) { /* the link was lost, or the grant failed */
        sl_err code = why != NULL && why->code != SL_OK ? why->code : SL_ERR_UNREACHABLE;
        ho_loan_end(ho, loan, code, why != NULL ? why->text : "", true);
    } else if (!tr_blob_replace(&share->key, &share->key_bytes, key->at, (uint32_t)key->length)) {
        ho_loan_end(ho, loan, SL_ERR_NO_MEMORY, "no memory for a key", true);
    } else {
        share->right = RIGHT_READY;
        ho_due(ho, 0);
    }
    return true;
}

bool tr_lend_grant_ended(struct transporter *self, uint32_t handle)
{
    struct handover *ho = self->handover;
    struct ho_grant *grant = grant_of(ho, handle);
    if (grant == NULL) {
        return false;
    }
    struct ho_loan *loan = &ho->loans[grant->loan];
    struct ho_share *share = &loan->shares[grant->part];
    grant->used = false;
    share->right = RIGHT_NONE;
    loan->grants_open--;
    loan->places_open -= share->place_count;
    ho->places_open -= share->place_count;
    ho_due(ho, 0); /* another loan may wait for these places */
    ho_loan_settle(ho, loan);
    return true;
}
