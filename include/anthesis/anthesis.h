// Everything, for those who do not mind.
#pragma once

#include "anthesis/adapter.h"      // IWYU pragma: export
#include "anthesis/config.h"       // IWYU pragma: export
#include "anthesis/dtype.h"        // IWYU pragma: export
#include "anthesis/edits.h"        // IWYU pragma: export
#include "anthesis/engine.h"       // IWYU pragma: export
#include "anthesis/error.h"        // IWYU pragma: export
#include "anthesis/forward.h"      // IWYU pragma: export
#include "anthesis/model.h"        // IWYU pragma: export
#include "anthesis/profile.h"      // IWYU pragma: export
#include "anthesis/request.h"      // IWYU pragma: export
#include "anthesis/tensor.h"       // IWYU pragma: export
#include "anthesis/tensor_file.h"  // IWYU pragma: export
#include "anthesis/tokenizer.h"    // IWYU pragma: export
#include "anthesis/trace.h"        // IWYU pragma: export
#include "anthesis/values.h"       // IWYU pragma: export
