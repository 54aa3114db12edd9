/* The eight calls under the names of the papers' libraries: SPF_ (Swift, NSDI 2008) and NPF_ (2007).
 *
 * The papers give the names and the effects of the calls, not their parameters; these are fyke's. */
#ifndef FYKE_COMPAT_H
#define FYKE_COMPAT_H

#include <stddef.h>
#include "fyke.h"

#define SPF_Open(socket) fyke_open(socket)
#define SPF_NewPass(filter) fyke_new_pass(filter)
#define SPF_DelPass(filter, pass) fyke_del_pass(filter, pass)
#define SPF_DupPass(filter, pass) fyke_dup_pass(filter, pass)
#define SPF_SelectOp(filter, pass, index, op, arg) fyke_select_op(filter, pass, index, op, arg)
#define SPF_AddParam(filter, pass, index, value) fyke_add_param(filter, pass, index, value)
#define SPF_DelParam(filter, pass, index, value) fyke_del_param(filter, pass, index, value)
#define SPF_PokeInst(filter, pass, index, word, value) fyke_poke_inst(filter, pass, index, word, value)

#define NPF_Open SPF_Open
#define NPF_NewPass SPF_NewPass
#define NPF_DelPass SPF_DelPass
#define NPF_DupPass SPF_DupPass
#define NPF_SelectOp SPF_SelectOp
#define NPF_AddParam SPF_AddParam
#define NPF_DelParam SPF_DelParam
#define NPF_PokeInst SPF_PokeInst

#endif
