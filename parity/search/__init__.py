"""The fastest policy that passes: which GEMMs can stay in the candidate's recipe? It gives no verdict; the judge confirms."""
